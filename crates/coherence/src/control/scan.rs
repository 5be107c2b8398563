//! Finds the data files that the server already has open when the extension is switched on.
//!
//! Descriptors are named through `/proc/self/fd`. Where a security policy forbids that, a file is recognised by its first page.
//! The server opens and closes files during the scan. So the hooks of open and close are active before it begins. The scan skips
//! descriptors that a hook has registered, and verifies its own once more.

use std::time::Duration;

use crate::core::Core;
use crate::files::{self, Attach};
use crate::platform::os::{Os, Stat};

/// How long a thread may be between our check in a hook and the call behind it; the delay before the second pass.
const SCAN_DELAY: Duration = Duration::from_millis(20);

impl<O: Os> Core<O> {
    /// Registers the open data files. Returns the number of registered descriptors.
    pub fn register_open_files(&'static self) -> usize {
        self.register_open_files_twice(SCAN_DELAY)
    }

    /// Like [`register_open_files`](Self::register_open_files), with this delay between both passes. Zero is enough where no other
    /// thread opens files.
    pub fn register_open_files_twice(&'static self, between: Duration) -> usize {
        let mut found = self.register_unknown();
        crate::platform::sync::sleep(between);
        // Files whose open was in progress when tracking began.
        found.extend(self.register_unknown());
        for &fd in &found {
            let _ = self.files.of_descriptor(fd); // reverts the registration of a descriptor of another file
        }
        found.len()
    }

    fn register_unknown(&'static self) -> Vec<i32> {
        let mut found = Vec::new();
        for fd in self.os().open_descriptors() {
            if self.files.of_descriptor(fd).is_some() {
                continue;
            }
            if let Some((stat, name)) = data_file(self.os(), fd) {
                self.files.attach(fd, &stat, &name, Attach::Found);
                found.push(fd);
            }
        }
        found
    }
}

/// Whether the server has InnoDB's files open, so that InnoDB was started before the plugin.
pub fn innodb_is_running(os: &impl Os) -> bool {
    os.open_descriptors()
        .into_iter()
        .any(|fd| data_file(os, fd).is_some())
}

fn data_file(os: &impl Os, fd: i32) -> Option<(Stat, Vec<u8>)> {
    let stat = os.stat(fd)?;
    if !stat.is_regular {
        return None;
    }
    if let Some(name) = os.path_of(fd) {
        let name = name.strip_suffix(b" (deleted)").unwrap_or(&name).to_vec();
        return files::is_data_file_name(&name).then_some((stat, name));
    }
    begins_with_a_tablespace_header(os, fd, stat.size)
        .then(|| (stat, format!("descriptor {fd}").into_bytes()))
}

/// Page 0 of a tablespace has page number 0 and the type of a file space header.
fn begins_with_a_tablespace_header(os: &impl Os, fd: i32, size: i64) -> bool {
    #[repr(C, align(4096))]
    struct Aligned([u8; 4096]);
    if size < 4 * 4096 {
        return false;
    }
    let mut head = Box::new(Aligned([0; 4096]));
    // SAFETY: the buffer is valid for its length and aligned for direct I/O.
    let read = unsafe { os.read(fd, head.0.as_mut_ptr(), head.0.len(), 0) };
    const FILE_SPACE_HEADER: u16 = 8;
    read == Ok(head.0.len())
        && head.0[4..8] == [0; 4]
        && u16::from_be_bytes([head.0[24], head.0[25]]) == FILE_SPACE_HEADER
}

#[cfg(all(test, not(checker)))]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::testing::os_for_tests::{self, TestOs};

    fn file(bytes: &[u8], size: u64) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.set_len(size).unwrap();
        file
    }

    /// Whether a file that begins with these bytes is recognised as a tablespace.
    fn looks_like_one(bytes: &[u8], size: u64) -> bool {
        let file = file(bytes, size);
        data_file(&TestOs::default(), file.as_raw_fd()).is_some()
    }

    #[test]
    fn both_passes_register_what_they_find() {
        let mut first = [0; 4096];
        first[25] = 8;
        let files = [16384, 16384, 4096].map(|size| file(&first, size));
        let [early, late, short] = files.each_ref().map(AsRawFd::as_raw_fd);
        let core = os_for_tests::core();
        core.switch().start_tracking(|| ());
        let passes = [vec![early, short], vec![early, late]];
        core.os().found.lock().unwrap().extend(passes);
        assert_eq!(core.register_open_files_twice(Duration::ZERO), 2);
        let is_registered = |fd| core.files.of_descriptor(fd).is_some();
        assert_eq!([early, late, short].map(is_registered), [true, true, false]);
    }

    #[test]
    fn a_file_without_a_name_is_known_by_its_first_page() {
        let size = 4 * 4096;
        let mut first = [1; 4096];
        first[4..8].fill(0);
        first[24..26].copy_from_slice(&[0, 8]);
        assert!(looks_like_one(&first, size));
        assert!(
            !looks_like_one(&first, size - 1),
            "too short for a tablespace"
        );
        let mut numbered = first;
        numbered[7] = 1;
        assert!(
            !looks_like_one(&numbered, size),
            "its first page has number 1"
        );
        let mut other = first;
        other[25] = 2;
        assert!(!looks_like_one(&other, size), "an undo log page");
    }

    #[test]
    fn what_is_no_regular_file_is_no_data_file() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(data_file(&TestOs::default(), reader.as_raw_fd()).is_none());
    }
}
