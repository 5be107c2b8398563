//! Files of which something is cached in an extension that is not active, until it is active again.

use extension::Extension;

use super::{DataFile, Files, Kept};
use crate::manifest::Left;
use crate::os::Os;
use crate::sync::Ordering;

impl<O: Os> Files<O> {
    /// Remembers which identities the files have in this extension, which was switched off. Nobody follows them from now on, or somebody
    /// does who drops nothing: so they get new ones, and the old ones back when they are opened or found while it is on, with everything
    /// under them to be compared.
    pub fn keep(&'static self, extension: &Extension) {
        let files = self.all();
        let ids: Vec<_> = files.iter().map(|file| file.id()).collect();
        let counts = extension.file_pages(&ids);
        // Files that another process has left, and this one has not opened, are the same as before.
        let mut kept = std::mem::take(&mut self.registry.lock().kept);
        for ((file, id), pages) in files.iter().zip(ids).zip(counts) {
            let (inode, base) = (file.details.lock().key, file.base.load(Ordering::Relaxed));
            if pages > 0 {
                kept.insert(
                    inode,
                    Left::while_off(inode, id, file.page_size(), base, pages),
                );
            }
            file.replace_contents();
        }
        self.registry.lock().kept = kept;
    }

    /// The extension is not there any more.
    pub fn forget_kept(&self) {
        self.registry.lock().kept = Kept::default();
    }
}

impl DataFile {
    /// It has just got its object.
    pub(super) fn return_to(&self, left: &Left) {
        // Before the doubt is noted there, which is about this identity.
        if let Some((_, record)) = self.record() {
            record.identify(left.id.0);
        }
        self.details.lock().left = Some(Box::new(*left));
        self.base.store(left.base, Ordering::Relaxed);
        self.page_size.store(left.page_size, Ordering::SeqCst);
        self.id.store(left.id.0, Ordering::SeqCst);
        self.inherited.store(true, Ordering::SeqCst);
    }
}
