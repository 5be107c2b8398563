//! How far `innodb_buffer_pool_size` can be lowered for the extension's memory.
//!
//! The reference lowers it by 4 %. This command lowers it by the memory that the extension will really use, at most 4
//! %, in steps that the server allows:
//!
//! - MySQL, and MariaDB before 10.11.12, 11.4.6 and 11.8.2: multiples of
//!   `innodb_buffer_pool_chunk_size` times the number of pool instances, never below one such
//!   step. With the default chunk of 128 MiB the pool must be over 3.2 GiB for 4 % to be a step.
//! - MariaDB from there on (`innodb_buffer_pool_chunk_size` reads 0): 1 MiB.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::connect::plain;
use crate::connect::server::{Server, error_code};
use crate::support::failure::Failure;

/// At most 1/25 of the pool (4 %) is taken away.
const MAX_SHARE_DIVISOR: u64 = 25;
const MIB: u64 = 1 << 20;
/// MariaDB's allocation unit of the pool.
const EXTENT: u64 = 8 * MIB;
/// Resize timeout. MySQL shrinks the pool in a background thread, and a long transaction can delay that.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// MySQL's error while a resize is running (ER_BUFPOOL_RESIZE_INPROGRESS). MariaDB up to 10.11.11 resized in the
/// background, too; its error has a general number and the same text.
const RESIZE_IN_PROGRESS: u16 = 3166;

/// A server's buffer pool. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    pub size: u64,
    /// Allowed sizes are multiples of this.
    pub step: u64,
    /// Maximum size without a restart, if limited.
    pub max: Option<u64>,
}

impl Pool {
    pub fn of(server: &mut Server) -> Result<Self, Failure> {
        let size = server
            .number("innodb_buffer_pool_size")?
            .ok_or_else(|| Failure::refused("the server has no InnoDB buffer pool"))?;
        let chunk = server.number("innodb_buffer_pool_chunk_size")?.unwrap_or(0);
        let instances = server.number("innodb_buffer_pool_instances")?.unwrap_or(1);
        Ok(Self {
            size,
            step: step(chunk, instances),
            max: server.number("innodb_buffer_pool_size_max")?,
        })
    }

    /// Required `innodb_buffer_pool_size_max` when the server starts with a lowered pool, so that the pool can return
    /// to this size. `None` if the limit is higher anyway.
    pub fn max_to_keep(self) -> Option<u64> {
        // The server rounds the limit up to its allocation unit.
        self.max
            .filter(|&max| max < self.size.saturating_add(EXTENT))
            .map(|_| self.size)
    }

    /// The size to lower the pool to when `memory` bytes are used elsewhere; `None` if no allowed size is within the 4 %.
    pub fn lowered_for(self, memory: u64) -> Option<u64> {
        let most = self.size / MAX_SHARE_DIVISOR;
        let exact = self.size - memory.min(most);
        let below = exact / self.step * self.step;
        if below >= self.step && self.size - below <= most {
            return Some(below);
        }
        let above = exact.div_ceil(self.step).saturating_mul(self.step);
        (above < self.size).then_some(above)
    }
}

/// Never 0, whatever the server answers.
fn step(chunk: u64, instances: u64) -> u64 {
    if chunk == 0 {
        MIB
    } else {
        chunk.saturating_mul(instances.max(1))
    }
}

/// Memory that the extension will take for a cache of `size` bytes in total: about 16 bytes per page, the staging
/// frames of a burst, and a constant. This is the maximum for pages of one size; `Bpe_memory_bytes` is lower while less
/// is staged.
pub fn expected_memory(size: u64, page_size: u64) -> u64 {
    const STANDING: u64 = MIB;
    let of_pages = (size / page_size.max(1)).saturating_mul(16);
    of_pages.saturating_add((size / 400).clamp(3 * MIB, 64 * MIB) + STANDING)
}

/// The largest cache whose expected memory stays within 4 % of a pool of `pool` bytes, 0 if none.
pub fn largest_cache(pool: u64, page_size: u64) -> u64 {
    let (mut fits, mut over) = (0, 1_u64 << 50);
    while over - fits > MIB {
        let middle = fits.midpoint(over);
        if expected_memory(middle, page_size) <= pool / MAX_SHARE_DIVISOR {
            fits = middle;
        } else {
            over = middle;
        }
    }
    fits / MIB * MIB
}

/// Sets the pool's size, waits for the server, and returns the resulting size. If another resize is running, for
/// example from a lost connection, waits for that first.
///
/// # Errors
/// The server refuses, or needs more than a minute; the resize then continues in the background.
pub fn resize(server: &mut Server, size: u64) -> Result<u64, String> {
    let end = Instant::now() + RESIZE_TIMEOUT;
    while let Err(error) = server.execute(&format!("SET GLOBAL innodb_buffer_pool_size = {size}")) {
        let (code, said) = (error_code(&error), plain(&error));
        let busy = code == RESIZE_IN_PROGRESS || said.contains("already in progress");
        if !busy || Instant::now() > end {
            return Err(said);
        }
        sleep(POLL_INTERVAL);
    }
    let warnings = server.warnings();
    let end = Instant::now() + RESIZE_TIMEOUT;
    loop {
        let now = server
            .number("innodb_buffer_pool_size")
            .map_err(|failure| failure.to_string())?
            .unwrap_or(0);
        let state = server
            .status("Innodb\\_buffer\\_pool\\_resize\\_status")
            .map_err(|failure| failure.to_string())?
            .into_values()
            .next()
            .unwrap_or_default();
        let lower = state.to_ascii_lowercase();
        if lower.is_empty() || lower.contains("completed") || lower.contains("did not change") {
            return if now == size || warnings.is_empty() {
                Ok(now)
            } else {
                Err(warnings)
            };
        }
        if lower.contains("fail") || lower.contains("abort") {
            return Err(state);
        }
        if Instant::now() > end {
            return Err(format!(
                "not finished after a minute ({state}); the server goes on"
            ));
        }
        sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn lowers_by_what_is_used_in_the_servers_steps() {
        let pool = |size, step| Pool {
            size,
            step,
            max: None,
        };
        // MariaDB, 1 MiB steps: 1.2 MiB of memory costs 2 MiB.
        assert_eq!(
            pool(128 * MIB, MIB).lowered_for(MIB + MIB / 5),
            Some(126 * MIB)
        );
        // Never more than 4 %: 5.12 MiB of 128.
        assert_eq!(pool(128 * MIB, MIB).lowered_for(GIB), Some(123 * MIB));
        // One chunk of 128 MiB is less than 4 % of 16 GiB.
        assert_eq!(
            pool(16 * GIB, 128 * MIB).lowered_for(130 * MIB),
            Some(16 * GIB - 256 * MIB)
        );
        assert_eq!(
            pool(16 * GIB, 128 * MIB).lowered_for(GIB),
            Some(16 * GIB - 5 * 128 * MIB)
        );
        // Eight instances: a step is 1 GiB, more than 4 %.
        assert_eq!(pool(16 * GIB, GIB).lowered_for(GIB), None);
        assert_eq!(pool(128 * MIB, 128 * MIB).lowered_for(GIB), None);
    }

    #[test]
    fn what_is_taken_never_exceeds_four_percent() {
        for size in [5, 6, 25, 26, 128, 200, 1000, 16_384] {
            for step in [1, 2, 8, 128] {
                for memory in [0, 1, 7, 64, 5000] {
                    let pool = Pool {
                        size: size * MIB,
                        step: step * MIB,
                        max: None,
                    };
                    if let Some(lowered) = pool.lowered_for(memory * MIB) {
                        assert!(lowered <= pool.size, "{pool:?} {memory}");
                        assert!(
                            pool.size - lowered <= pool.size / MAX_SHARE_DIVISOR,
                            "{pool:?} {memory}"
                        );
                        assert_eq!(lowered % pool.step, 0);
                        assert!(lowered > 0);
                    }
                }
            }
        }
    }

    #[test]
    fn room_to_come_back_is_kept() {
        let pool = |max| Pool {
            size: 100 * MIB,
            step: MIB,
            max,
        };
        assert_eq!(pool(Some(104 * MIB)).max_to_keep(), Some(100 * MIB));
        assert_eq!(pool(Some(100 * MIB)).max_to_keep(), Some(100 * MIB));
        assert_eq!(pool(Some(8 << 40)).max_to_keep(), None);
        assert_eq!(pool(None).max_to_keep(), None);
    }

    #[test]
    fn steps_are_the_servers() {
        assert_eq!(step(0, 1), MIB);
        assert_eq!(step(128 * MIB, 8), GIB);
    }

    #[test]
    fn hostile_figures_do_not_overflow() {
        const ALL: [u64; 5] = [0, 1, 1 << 32, 1 << 63, u64::MAX];
        for (size, chunk) in ALL.iter().flat_map(|size| ALL.map(|chunk| (*size, chunk))) {
            for instances in ALL {
                let pool = Pool {
                    size,
                    step: step(chunk, instances),
                    max: Some(size),
                };
                for memory in ALL {
                    let lowered = pool.lowered_for(memory);
                    assert!(lowered.is_none_or(|lowered| lowered <= size), "{pool:?}");
                }
                assert_eq!(pool.max_to_keep(), (size < u64::MAX).then_some(size));
            }
            assert!(expected_memory(size, chunk) >= 4 * MIB);
            assert_eq!(largest_cache(size, chunk) % MIB, 0);
        }
    }

    #[test]
    fn expected_memory_is_small_beside_the_cache() {
        assert_eq!(expected_memory(GIB, 16 << 10), 5 * MIB);
        assert!(expected_memory(100 * GIB, 16 << 10) < 200 * MIB);
        let largest = largest_cache(128 * MIB, 16 << 10);
        assert!(expected_memory(largest, 16 << 10) <= 128 * MIB / MAX_SHARE_DIVISOR);
        assert!(expected_memory(largest + 2 * MIB, 16 << 10) > 128 * MIB / MAX_SHARE_DIVISOR);
        assert_eq!(largest_cache(MIB, 16 << 10), 0);
    }
}
