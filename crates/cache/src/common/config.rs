//! Configuration of an `Extension`, and the errors of opening one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use crate::common::budget::WriteBudget;

/// Maximum number of instances of an extension.
pub const MAX_INSTANCES: u32 = 64;

/// Storage format of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub enum Compression {
    #[default]
    Off,
    Lz4,
}

/// Available policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PolicyName {
    /// That of servers.
    #[default]
    Density,
    SecondChance,
}

impl PolicyName {
    pub const ALL: &[PolicyName] = &[PolicyName::Density, PolicyName::SecondChance];

    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Density => "density",
            PolicyName::SecondChance => "second-chance",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The server that a cache file belongs to: derived from its data directory, stamped into the file's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerIdentity(pub [u8; 16]);

#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Absolute path of a file, or of an existing directory in which the file `file_name` is created.
    pub path: PathBuf,
    /// Bytes of the file, including the header.
    pub bytes: u64,
    pub owner: OwnerIdentity,
    /// Used when `path` is a directory.
    pub file_name: String,
}

#[derive(Clone, Debug)]
pub struct Config {
    pub devices: Vec<DeviceConfig>,
    /// 1..=64.
    pub instances: u32,
    /// Memory limit of the extension in bytes; 0: as much as the size of the devices requires.
    pub memory_limit: u64,
    /// Bytes written to all devices together per second; 0: no limit.
    pub io_capacity: u64,
    /// Policy of admission and eviction. Servers keep the default.
    pub policy: PolicyName,
    pub compression: Compression,
    /// The daily write account and its limit. Shared by all extensions of a process.
    pub budget: Arc<WriteBudget>,
    /// Longest wait for a read of a device before the page is read from its origin; `None`: unbounded.
    pub read_timeout: Option<Duration>,
    /// Bytes of a typical page, for sizing the directory.
    pub nominal_page: u32,
    /// A file on an in-memory file system, in which the directories (the indexes of cached pages)
    /// outlive the process; `None`: they do not.
    pub arena: Option<PathBuf>,
    /// Session of another process whose state is recovered, if it persisted it in the arena. Otherwise the arena is created anew.
    pub recover_session: Option<u64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            devices: Vec::new(),
            instances: 1,
            memory_limit: 0,
            io_capacity: 0,
            policy: PolicyName::default(),
            compression: Compression::default(),
            budget: Arc::default(),
            read_timeout: None,
            nominal_page: 16384,
            arena: None,
            recover_session: None,
        }
    }
}

/// Result of `check_device`.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceFacts {
    /// The cache file itself.
    pub path: PathBuf,
    /// A cache file of this server exists already.
    pub exists: bool,
    /// Reads and writes can bypass the page cache (O_DIRECT). Without it the cache competes for memory with the server.
    pub direct: bool,
    /// `st_dev` of the file system.
    pub device_number: u64,
    /// Bytes an unprivileged user may still allocate on the file system.
    pub free_bytes: u64,
    /// Warnings about a usable device.
    pub warnings: Vec<String>,
}

/// Why the extension could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("no device is given; name at least one file or directory on a fast disk")]
    NoDevice,
    #[error("{instances} instances are asked for; give a number from 1 to {MAX_INSTANCES}")]
    Instances { instances: u32 },
    #[error("the nominal page size {bytes} is not a power of two from 1024 to 65536")]
    NominalPage { bytes: u32 },
    #[error("'{path}' is not an absolute path; give the full path of a file or directory")]
    RelativePath { path: PathBuf },
    #[error(
        "'{path}' gets {bytes} bytes, but a device needs at least {minimum}; raise the size or name fewer devices"
    )]
    TooSmall {
        path: PathBuf,
        bytes: u64,
        minimum: u64,
    },
    #[error(
        "the devices have {bytes} bytes together, but {maximum} is the most that can be addressed; lower the size"
    )]
    TooLarge { bytes: u64, maximum: u64 },
    #[error(
        "a memory limit of {limit} bytes is too low for devices of {device_bytes} bytes: {needed} bytes are needed; \
         raise the memory limit or lower the size"
    )]
    MemoryLimit {
        limit: u64,
        device_bytes: u64,
        needed: u64,
    },
    #[error("{bytes} bytes of memory are not available: {source}; lower the size or free memory")]
    Memory { bytes: u64, source: std::io::Error },
    #[error("cannot {action} '{path}': {source}; {advice}")]
    Io {
        path: PathBuf,
        action: &'static str,
        source: std::io::Error,
        advice: &'static str,
    },
    #[error(
        "'{path}' is {what}, not a regular file; name a regular file or a directory on the fast disk"
    )]
    NotRegular { path: PathBuf, what: &'static str },
    #[error("'{path}' {what}, so other users could read or change cached pages; {advice}")]
    Insecure {
        path: PathBuf,
        what: String,
        advice: &'static str,
    },
    #[error(
        "'{path}' exists and is not a cache file, so it is left alone; remove it or name another file"
    )]
    Foreign { path: PathBuf },
    #[error(
        "'{path}' has format version {version}, but this library knows {known}; remove the file, its contents are not needed"
    )]
    Version {
        path: PathBuf,
        version: u32,
        known: u32,
    },
    #[error(
        "'{path}' belongs to another server; name another file, or remove it if that server is gone"
    )]
    OtherOwner { path: PathBuf },
    #[error("'{path}' is in use by another server; give each server its own file")]
    InUse { path: PathBuf },
    #[error(
        "'{path}' is in use by another process whose data directory has the same path, on a host of the same name; if two servers \
         were started on one data directory, or the one before has not ended, stop one; otherwise give each its own file"
    )]
    SameData { path: PathBuf },
    #[error(
        "'{path}' is open in this server already: it is named twice, or the cache of before still waits for a disk that does \
         not answer; try again when it does, or leave it out"
    )]
    HeldHere { path: PathBuf },
    #[error(
        "the file system of '{path}' has {free} bytes free, but {needed} are needed ({reserve} of them to stay free); \
         lower the size or free space"
    )]
    NoSpace {
        path: PathBuf,
        free: u64,
        needed: u64,
        reserve: u64,
    },
    #[error("cannot start a writer thread: {source}; raise the limit on threads")]
    Thread { source: std::io::Error },
}
