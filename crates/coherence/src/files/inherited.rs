//! Files that another process has left: known again when they are opened, if nobody can have changed them since.

use std::ffi::CString;

use extension::{Extension, FileId};

use super::{DataFile, Files};
use crate::doubtful::{Doubtful, Extent, Noted};
use crate::identity::{Clocks, Closed};
use crate::manifest::{Doubt, Left, Which};
use crate::os::{Os, Stat};
use crate::sync::Ordering;

/// Of more files the pages are not counted.
const MOST_COUNTED: usize = 2048;

impl<O: Os> Files<O> {
    /// Which file it is that a descriptor leads to, for the next process.
    pub(super) fn which(&self, fd: i32, stat: &Stat) -> Which {
        if self.switch.manifest().is_none() {
            return Which::default();
        }
        let device = stat.inode.0;
        let mount = self.inheritance.mount(device, || self.os.mount(device, fd));
        Which {
            inode: stat.inode,
            birth: self.os.birth(fd),
            mount,
        }
    }

    /// Takes over the files that another process has left. Before any is followed: how many.
    pub fn inherit(&'static self) -> u64 {
        let Some(manifest) = self.switch.manifest() else {
            return 0;
        };
        let left = manifest.take_over(&self.os);
        let mut registry = self.registry.lock();
        if registry.objects != 0 {
            return 0;
        }
        let mut found = (0, 0);
        for (owner, left) in left {
            // Objects have the numbers of their records.
            while registry.objects < owner {
                registry.objects += 1;
                let file = DataFile::new(registry.objects, &self.switch);
                let file: &'static DataFile = Box::leak(Box::new(file));
                if registry.objects < owner {
                    registry.resting.push_back((self.os.running(), file));
                } else {
                    found = (found.0 + 1, found.1 + left.pages);
                    file.take_over(&left);
                    registry.by_inode.insert(left.which.inode, file);
                    registry.closed.push_back(file);
                }
            }
        }
        self.inheritance.found(found);
        found.0
    }

    /// The same in a server that has opened and changed files before anybody followed them. They get their identities back when they are
    /// found or opened from now on, with everything under them to be compared. While no file has an identity yet: how many.
    pub fn inherit_late(&'static self) -> u64 {
        let Some(manifest) = self.switch.manifest() else {
            return 0;
        };
        let left = manifest.take_over_late(&self.os);
        let mut registry = self.registry.lock();
        // Of a file that was followed for a recording the identity may be one that another process has given to another file.
        if registry.objects != 0 {
            return 0;
        }
        let pages = left.iter().map(|left| left.pages).sum();
        let found = (left.len() as u64, pages);
        let by_inode = |left: Left| (left.which.inode, left);
        registry.kept = left.into_iter().map(by_inode).collect();
        drop(registry);
        self.inheritance.found(found);
        found.0
    }

    /// Nothing that another process has left of the files is believed any more, whether they were opened since or not.
    pub fn disbelieve(&'static self) {
        let registry = self.registry.lock();
        for file in registry.by_inode.values() {
            let is_undecided = file.undecided.load(Ordering::SeqCst);
            if is_undecided || file.inherited.load(Ordering::SeqCst) {
                file.details.lock().left = None;
                file.replace_contents();
            }
        }
        self.inheritance.disbelieve();
    }

    /// Tells an extension that has taken over what another process has left of the files. Before it is the active one.
    pub fn hand_over(&self, extension: &Extension) {
        let registry = self.registry.lock();
        for file in registry.by_inode.values() {
            if !file.inherited.load(Ordering::SeqCst) {
                continue;
            }
            let pages = file
                .details
                .lock()
                .left
                .as_ref()
                .map_or(0, |left| left.pages);
            extension.inherit_file(file.id(), u32::MAX, pages);
        }
        for left in registry.kept.values() {
            extension.inherit_file(left.id, u32::MAX, left.pages);
        }
    }

    /// Drops what is cached of open files that somebody else has changed last, before a change of the server hides that. When the server
    /// stops: how many files that are.
    pub fn drop_changed(&'static self) -> usize {
        let Some(manifest) = self.switch.manifest() else {
            return 0;
        };
        let now = self.os.file_time();
        let mut changed = self.all();
        changed.retain(|file| {
            let (Some(changes), Some(record)) = (file.at_rest(), manifest.record(file.owner))
            else {
                return false;
            };
            let stat = self.descriptor_of(file).and_then(|fd| self.os.stat(fd));
            let (Some(stat), Some(left)) = (stat, record.left(Some(now))) else {
                return false;
            };
            let doubt = left.doubt(&left.which, &stat, &self.os);
            doubt == Some(Doubt::Changed) && file.at_rest() == Some(changes)
        });
        changed.iter().for_each(|file| file.replace_contents());
        changed.len()
    }

    /// A file that was closed right after a change could be changed once more, and have the same times. Later it could not: what is still
    /// the same then counts as closed at that time. When the server stops: whether there is any for which it is too early.
    pub fn settle_closed(&self) -> bool {
        let Some(manifest) = self.switch.manifest() else {
            return false;
        };
        let mut is_early = false;
        for file in self.all() {
            let Some(record) = manifest.record(file.owner) else {
                continue;
            };
            let Some(closed) = record.unsettled() else {
                continue;
            };
            let (key, name) = {
                let details = file.details.lock();
                (details.key, CString::new(details.name.as_bytes()))
            };
            let now = Clocks::now(&self.os);
            let later = Closed {
                clocks: now,
                ..closed
            };
            if !later.is_settled() {
                is_early = true;
                continue;
            }
            // Not under the registry's lock: it may have to ask a file server.
            let stat = name
                .ok()
                .and_then(|name| self.os.stat_at(O::HERE, &name))
                .filter(|stat| stat.inode == key && closed.is(stat, &self.os));
            let registry = self.registry.lock();
            // Nobody has opened it, or closed it again, meanwhile.
            if stat.is_some() && registry.stands(key, file) && record.unsettled() == Some(closed) {
                record.is_still(&now);
            }
        }
        is_early
    }

    /// Files of which not all was compared that is doubtful, and about so many pages of them.
    pub fn to_compare(&self) -> (u64, u64) {
        if self.switch.doubts.is_empty() {
            return (0, 0);
        }
        let mut files = self.all();
        files.retain(|file| file.is_doubtful(file.id()) && !file.doubtful.is_done());
        let left = files.iter().map(|file| file.doubtful.left());
        (files.len() as u64, left.sum())
    }

    /// Of files that were never opened in this process nobody knows whether they were changed, and not flushed, before it began. Once the
    /// machine has restarted their times may not tell.
    pub fn leave_unopened(&self) {
        let Some(manifest) = self.switch.manifest() else {
            return;
        };
        let registry = self.registry.lock();
        for file in registry.by_inode.values() {
            if !file.undecided.load(Ordering::SeqCst) {
                continue;
            }
            if let Some(record) = manifest.record(file.owner) {
                record.forget_flush();
            }
        }
    }

    /// Notes for the next process how many pages of each file are cached, and what time it is.
    pub fn note_pages(&self, extension: &Extension) {
        let Some(manifest) = self.switch.manifest() else {
            return;
        };
        let files = self.all();
        // They are counted under the instances' locks.
        if files.len() > MOST_COUNTED {
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

impl DataFile {
    /// What is cached under this identity, which is the file's, may be old: none of it is served before it was compared. To be said
    /// while nobody is served from it. About so many pages are cached; `is_all`: none beyond the end of the file.
    pub fn doubt(&self, id: FileId, stat: &Stat, cached: u64, is_all: bool) {
        let bytes = u64::try_from(stat.size).unwrap_or(0);
        let pages = bytes / u64::from(self.page_size().max(1));
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        // First: whatever becomes of this process, the next one must not believe it.
        if let Some((_, record)) = self.record() {
            record.doubt(id.0, is_all);
        }
        let extent = Extent {
            bytes,
            pages,
            cached,
            is_all,
        };
        self.doubtful.begin(id, extent, &self.switch.doubts);
    }

    /// Whether what is cached under this identity may be old.
    #[inline]
    pub fn is_doubtful(&self, id: FileId) -> bool {
        self.doubtful.is(id)
    }

    /// What must be compared before it is served.
    #[inline]
    pub fn doubtful(&self) -> &Doubtful {
        &self.doubtful
    }

    /// What was cached of these pages by another process is gone or was compared.
    #[cold]
    pub fn settle(&self, id: FileId, first: u32, pages: u32) {
        // Who still uses another identity needs nothing.
        if self.id() != id {
            return;
        }
        let doubts = &self.switch.doubts;
        match self.doubtful.settle(id, first, pages, doubts) {
            Noted::Yes => {}
            Noted::All => {
                if let Some((_, record)) = self.record() {
                    record.trust(id.0);
                }
            }
            Noted::NoRoom => self.replace_contents(),
        }
    }

    fn take_over(&self, left: &Left) {
        let mut details = self.details.lock();
        details.key = left.which.inode;
        details.left = Some(Box::new(*left));
        self.base.store(left.base, Ordering::Relaxed);
        self.page_size.store(left.page_size, Ordering::SeqCst);
        self.id.store(left.id.0, Ordering::SeqCst);
        self.listed_as_closed.store(true, Ordering::SeqCst);
        self.inherited.store(true, Ordering::SeqCst);
        self.undecided.store(true, Ordering::SeqCst);
    }
}
