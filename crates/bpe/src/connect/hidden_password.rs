//! Removes a password from the process's arguments, so that the process list does not show it, as in the servers'
//! clients. It is still visible for a moment.

use std::ops::Range;

/// Overwrites the secret if it is an argument, or the end of an option. Does nothing if that is impossible.
pub fn hide_argument(secret: &str) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some(range) = argument_addresses(&stat).filter(|_| !secret.is_empty()) else {
        return;
    };
    // SAFETY: according to the kernel, this range contains our own argument strings. It is writable memory of this
    // process. Only pointers of the C start-up code refer to it, and no other thread runs yet.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(
            std::ptr::with_exposed_provenance_mut::<u8>(range.start),
            range.len(),
        )
    };
    overwrite(bytes, secret.as_bytes());
}

/// `arg_start` and `arg_end` of proc(5): fields 48 and 49. The second field, the name, may contain any character.
fn argument_addresses(stat: &str) -> Option<Range<usize>> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(48 - 3);
    let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (0 < start && start < end).then_some(start..end)
}

fn overwrite(arguments: &mut [u8], secret: &[u8]) {
    for argument in arguments.split_mut(|byte| *byte == 0) {
        let option = argument.starts_with(b"-");
        if argument == secret || option && argument.ends_with(secret) {
            let from = argument.len() - secret.len();
            argument[from..].fill(b'x');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_is_overwritten() {
        let mut arguments = *b"bpe\0-psecret\0--password=secret\0secret\0my-secret\0-h\0secrets\0";
        overwrite(&mut arguments, b"secret");
        assert_eq!(
            arguments,
            *b"bpe\0-pxxxxxx\0--password=xxxxxx\0xxxxxx\0my-secret\0-h\0secrets\0"
        );
    }

    #[test]
    fn kernel_reports_argument_addresses() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let range = argument_addresses(&stat).unwrap();
        let length: usize = std::env::args_os().map(|arg| arg.len() + 1).sum();
        assert_eq!(range.len(), length);
        assert!(argument_addresses("1 (a b) R 1").is_none());
        assert!(argument_addresses("").is_none());
    }
}
