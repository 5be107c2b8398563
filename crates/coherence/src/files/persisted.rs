//! Recovery of persisted files: makes closed files of their records. The proof at the first open is in
//! [`restart::proof`](crate::restart::proof).

use cache::{Extension, FileId};

use super::data_file::DataFile;
use super::registry::Files;
use crate::platform::os::{Os, Stat};
use crate::platform::sync::Ordering;
use crate::restart::outcomes::RejectedFile;
use crate::restart::proof::{PersistedFile, Recovery, Rejection};
use crate::restart::stamp::FileIdentity;

/// With more files than this, pages of each file are not counted.
const MAX_COUNTED: usize = 2048;

impl<O: Os> Files<O> {
    /// The identity of the file behind a descriptor, for the next process.
    pub(super) fn identify(&self, fd: i32, stat: &Stat) -> FileIdentity {
        if self.switch.manifest().is_none() {
            return FileIdentity::default();
        }
        let device = stat.inode.0;
        FileIdentity {
            inode: stat.inode,
            birth: self.os.birth(fd),
            system: self
                .recoveries
                .system(device, || self.os.file_system(device, fd)),
        }
    }

    /// Sets whether the kernel has fine stamps ([`crate::restart::stamp`]).
    pub fn use_fine_stamps(&self, has_fine_stamps: bool) {
        self.has_fine_stamps
            .store(has_fine_stamps, Ordering::SeqCst);
    }

    /// Whether the kernel has fine stamps; `false` until set.
    pub fn has_fine_stamps(&self) -> bool {
        self.has_fine_stamps.load(Ordering::SeqCst)
    }

    /// Recovers the files that another process persisted. Call before any file is tracked. Returns the number of files.
    pub fn recover(&'static self, by: Recovery) -> u64 {
        let Some(manifest) = self.switch.manifest() else {
            return 0;
        };
        let persisted = manifest.recover(&self.os, by);
        self.recoveries.found_lsn(manifest.take_lsn());
        let mut registry = self.registry.lock();
        if registry.objects != 0 {
            return 0;
        }
        let mut found = (0, 0);
        for (owner, persisted) in persisted {
            debug_assert!(registry.objects < owner, "owners ascend");
            // An object has the number of its record.
            while registry.objects < owner {
                registry.objects += 1;
                let file = DataFile::new(registry.objects, &self.switch);
                let file: &'static DataFile = Box::leak(Box::new(file));
                if registry.objects < owner {
                    registry.quarantined.push_back((self.os.running(), file));
                } else {
                    found = (found.0 + 1, found.1 + persisted.pages);
                    file.restore(&persisted);
                    registry.by_inode.insert(persisted.identity.inode, file);
                    registry.closed.push_back(file);
                }
            }
        }
        self.recoveries.found(found.0, found.1);
        found.0
    }

    /// Rejects every persisted file. One that is not open yet is rejected when the server opens it: its length is known then, and
    /// its pages can be listed.
    pub fn reject_persisted(&'static self) {
        let registry = self.registry.lock();
        for file in registry.by_inode.values() {
            if !file.inherited.load(Ordering::SeqCst) {
                continue;
            }
            if let Some(persisted) = &mut file.details.lock().persisted {
                persisted.reject(Rejection::NoProof);
                // For the next process, too.
                if let Some((_, record)) = file.record() {
                    record.reject();
                }
                continue;
            }
            let (id, pages) = (file.id(), file.inherited_end.swap(0, Ordering::Relaxed));
            file.assign_new_id();
            self.recoveries.replaced(rejected(file, id, pages), 0);
        }
        self.recoveries.reject_trusted();
    }

    /// Forgets the persisted files that the server has not opened since its start. Their inodes may belong to no file any longer.
    pub fn forget_pending(&'static self) {
        for file in self.all() {
            let mut registry = self.registry.lock();
            // Opening takes it under the same lock.
            if file.details.lock().persisted.is_some() {
                self.forget_closed(&mut registry, file);
            }
        }
    }

    /// Registers the persisted files with an extension that has recovered their pages. Call before that extension is active.
    pub fn register_persisted(&self, extension: &Extension) {
        let mut registry = self.registry.lock();
        let mut registered = Vec::new();
        for file in registry.by_inode.values() {
            // First: an identity that is replaced here differs from it.
            let id = file.id();
            if !file.inherited.load(Ordering::SeqCst) {
                continue;
            }
            let pages = file
                .details
                .lock()
                .persisted
                .as_ref()
                .map_or(0, |persisted| persisted.pages);
            extension.trust_file(id, u32::MAX, pages);
            registered.push((*file, id, pages));
        }
        registry.registered = registered;
    }

    /// Forgets the pages of registered files whose identities were replaced before the extension was active. Call once it is:
    /// from then on each change forgets its own.
    pub fn forget_replaced(&'static self) {
        let registered = std::mem::take(&mut self.registry.lock().registered);
        let guard = self.switch.active();
        let Some(active) = &*guard else {
            return;
        };
        for (file, id, pages) in registered {
            if file.id() == id {
                continue;
            }
            active.extension.forget_file(id, 0);
            // A file that was not proven is listed already.
            let end = file.inherited_end.swap(0, Ordering::Relaxed);
            if end > 0 {
                self.recoveries.replaced(rejected(file, id, end), pages);
            }
        }
    }

    /// Drops the cached pages of open files whose stamp differs from the stored one. Another writer has changed such a file, and
    /// the server's next change would hide that. Call when the server stops. Returns the number of files.
    pub fn drop_changed(&'static self) -> usize {
        let Some(manifest) = self.switch.manifest() else {
            return 0;
        };
        let mut changed = self.all();
        changed.retain(|file| {
            let (Some(changes), Some(record)) = (file.idle_changes(), manifest.record(file.owner))
            else {
                return false;
            };
            let stat = self.descriptor_of(file).and_then(|fd| self.os.stat(fd));
            let is_changed = file.stamped.load(Ordering::SeqCst)
                && stat.is_some_and(|stat| !record.is_stamped(&stat));
            is_changed && file.idle_changes() == Some(changes)
        });
        changed.iter().for_each(|file| file.assign_new_id());
        changed.len()
    }

    /// Whether no change of any file is in flight.
    pub fn are_idle(&self) -> bool {
        self.all().iter().all(|file| file.idle_changes().is_some())
    }

    /// Stores the number of cached pages of each file, for the next process.
    pub fn note_pages(&self, extension: &Extension) {
        let Some(manifest) = self.switch.manifest() else {
            return;
        };
        let files = self.all();
        // The count takes the instances' locks.
        if files.len() > MAX_COUNTED {
            return;
        }
        let ids: Vec<_> = files.iter().map(|file| file.id()).collect();
        for (file, pages) in files.iter().zip(extension.file_pages(&ids)) {
            if let Some(record) = manifest.record(file.owner) {
                record.count(pages);
            }
        }
    }
}

/// A proven file whose pages, cached under this identity, are no longer trusted.
fn rejected(file: &DataFile, id: FileId, pages: u32) -> RejectedFile {
    RejectedFile {
        owner: file.owner,
        id,
        pages,
        page_size: file.page_size(),
        is_listed: true,
    }
}

impl DataFile {
    fn restore(&self, persisted: &PersistedFile) {
        debug_assert_ne!(persisted.page_size, 0, "no page of it was cached");
        let mut details = self.details.lock();
        details.inode = persisted.identity.inode;
        details.persisted = Some(Box::new(*persisted));
        self.first_page
            .store(persisted.first_page, Ordering::Relaxed);
        self.page_size.store(persisted.page_size, Ordering::SeqCst);
        self.id.store(persisted.id.0, Ordering::SeqCst);
        self.listed_as_closed.store(true, Ordering::SeqCst);
        self.inherited.store(true, Ordering::SeqCst);
    }
}
