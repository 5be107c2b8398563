//! Changes of a file that bring no bytes of a page: holes, truncation, unlink, rename, times, flush.

use crate::core::Core;
use crate::core::page_request::Completion;
use crate::files::DataFile;
use crate::platform::os::Os;

impl<O: Os> Core<O> {
    /// Submits a change of a file's range that brings no bytes (holes, zeroing).
    pub fn change_range<R>(
        &self,
        (fd, file): (i32, &'static DataFile),
        length: i64,
        offset: i64,
        real: impl FnOnce() -> R,
    ) -> R {
        if canary!("ranges") {
            return real();
        }
        let write = usize::try_from(length)
            .ok()
            .and_then(|length| self.begin_write(file, length, offset, Completion::Observed));
        let result = real();
        self.files.stamp(file, fd);
        if let Some(write) = write {
            self.finish_write(write, None, None);
        }
        result
    }

    /// Submits a change of a whole file.
    pub fn change_file<R>(&self, file: Option<&'static DataFile>, real: impl FnOnce() -> R) -> R {
        if canary!("truncation") {
            return real();
        }
        let _blocked = file.map(DataFile::begin_file_change);
        self.stamped_after(file, real)
    }

    /// Submits a call whose effect on the file's contents is not tracked. The file is not cached until it is reopened.
    pub fn change_untracked<R>(&self, file: &'static DataFile, real: impl FnOnce() -> R) -> R {
        if canary!("unfollowed") {
            return real();
        }
        let _changing = file.change();
        file.void_stamp();
        file.disable_caching();
        real()
    }

    /// Submits a flush of a file. `real` returns 0 on success. After a failure the kernel may have dropped pages that it could not
    /// write, so no file is proven from then on.
    pub fn flush(&self, real: impl FnOnce() -> i32) -> i32 {
        let result = real();
        if result != 0
            && !canary!("flush-failed")
            && let Some(manifest) = self.switch().manifest()
        {
            manifest.detach();
        }
        result
    }

    /// Submits a call that changes a file's size, names or times, but no bytes that may be cached.
    pub fn change_metadata<R>(
        &self,
        file: Option<&'static DataFile>,
        real: impl FnOnce() -> R,
    ) -> R {
        if canary!("looks") {
            return real();
        }
        let _changing = file.map(DataFile::change);
        self.stamped_after(file, real)
    }

    fn stamped_after<R>(&self, file: Option<&'static DataFile>, real: impl FnOnce() -> R) -> R {
        let result = real();
        if let Some(file) = file {
            self.files.stamp_open(file);
        }
        result
    }
}
