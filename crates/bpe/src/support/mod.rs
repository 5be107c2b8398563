//! Foundation of all other rooms: errors, the terminal, texts and sizes, and files that other users cannot redirect.
//!
//! Reading order: [`failure`] and [`terminal`] for messages; [`quote`], [`size`], [`text`] and [`random`] for values;
//! [`files`], [`private_file`] and [`elf`] for files; [`notifier`], [`progress_line`] and [`interruption`] for long commands.

pub mod elf;
pub mod failure;
pub mod files;
pub mod interruption;
pub mod notifier;
pub mod private_file;
pub mod progress_line;
pub mod quote;
pub mod random;
#[cfg(test)]
mod removed_check_tests;
pub mod size;
pub mod terminal;
pub mod text;
