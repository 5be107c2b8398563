//! What an executable or library imports and exports, from its dynamic symbol table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use interface::code::{self, Machine, Memory};
use interface::{Executable, Inside, Maker, Refusal, Release, Verdict};
use object::read::{ReadCache, ReadRef};
use object::{
    Architecture, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
};

/// The dynamic symbols of one ELF file.
#[derive(Debug)]
pub struct Symbols {
    pub architecture: Architecture,
    pub imports: BTreeSet<String>,
    pub exports: BTreeSet<String>,
    /// Which release it is, if it is a server.
    pub release: Option<Release>,
    /// Functions for asynchronous I/O that are part of it.
    linked_in: BTreeMap<String, Inside>,
}

impl Symbols {
    /// Reads only the tables, not the whole file.
    ///
    /// # Errors
    /// A text: cannot be opened, or is not an ELF file with symbols one can read.
    pub fn of(path: &Path) -> Result<Self, String> {
        let file =
            File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache)
            .map_err(|error| format!("{} is no ELF file: {error}", path.display()))?;
        let mut symbols = Self {
            architecture: object.architecture(),
            imports: BTreeSet::new(),
            exports: BTreeSet::new(),
            release: None,
            linked_in: BTreeMap::new(),
        };
        let mut binlog = None;
        let mut functions = Vec::new();
        for symbol in object.dynamic_symbols() {
            let Ok(name) = symbol.name() else { continue };
            if name.is_empty() {
                continue;
            }
            if symbol.is_undefined() {
                symbols.imports.insert(name.to_owned());
                continue;
            }
            if name.starts_with("io_") && symbol.kind() == object::SymbolKind::Text {
                functions.push((name.to_owned(), symbol.address(), symbol.size()));
            }
            match name {
                "builtin_maria_binlog_plugin" => binlog = Some((Maker::MariaDb, symbol.address())),
                "builtin_binlog_plugin" => binlog = Some((Maker::MySql, symbol.address())),
                _ => {}
            }
            symbols.exports.insert(name.to_owned());
        }
        symbols.release =
            binlog.and_then(|(maker, declarations)| release(&object, maker, declarations));
        if !functions.is_empty() {
            let contents = Contents::of(&object);
            let inside = |(name, address, size)| (name, contents.look(address, size));
            symbols.linked_in = functions.into_iter().map(inside).collect();
        }
        Ok(symbols)
    }

    /// Judges it as the executable of a server, as the plugin does inside.
    ///
    /// # Errors
    /// When its calls would not all be seen, whatever the server is told to use.
    pub fn judge(&self) -> Result<Verdict, Refusal> {
        if self.imports.is_empty() {
            return Err(Refusal::linked_statically());
        }
        if let Some(release) = self.release {
            release.check()?;
        }
        interface::judge(self)
    }
}

/// As the plugin finds it in the process: the second word of the declaration of the binary log's plugin points to a descriptor
/// that begins with the interface version.
fn release<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
    maker: Maker,
    declarations: u64,
) -> Option<Release> {
    let read = |address, length| {
        let find = |segment: object::Segment<'data, '_, R>| {
            segment.data_range(address, length).ok().flatten()
        };
        object.segments().find_map(find)
    };
    let slot = declarations.checked_add(8)?;
    // A program that may lie anywhere has the address in its relocations.
    let relocated = object
        .dynamic_relocations()
        .into_iter()
        .flatten()
        .find(|(at, _)| *at == slot)
        .and_then(|(_, relocation)| u64::try_from(relocation.addend()).ok());
    let descriptor = match relocated {
        Some(address) if address != 0 => address,
        _ => u64::from_le_bytes(read(slot, 8)?.try_into().ok()?),
    };
    let version = u32::from_le_bytes(read(descriptor, 4)?.try_into().ok()?);
    Some(Release::of_interface(maker, version))
}

impl Executable for Symbols {
    fn imports(&self, name: &str) -> bool {
        self.imports.contains(name)
    }

    fn inside(&self, name: &str) -> Option<Inside> {
        self.linked_in.get(name).copied()
    }
}

/// What lies in a file, by the addresses it is made for.
struct Contents<'data, 'file, R: ReadRef<'data>> {
    object: &'file object::File<'data, R>,
    /// Of `syscall`, through which a library that is linked in may reach the kernel.
    slots: BTreeSet<u64>,
}

impl<'data, 'file, R: ReadRef<'data>> Contents<'data, 'file, R> {
    fn of(object: &'file object::File<'data, R>) -> Self {
        let table = object.dynamic_symbol_table();
        let is_syscall = |target| match (target, &table) {
            (RelocationTarget::Symbol(index), Some(table)) => table
                .symbol_by_index(index)
                .is_ok_and(|symbol| symbol.name() == Ok("syscall") && symbol.is_undefined()),
            _ => false,
        };
        let relocations = object.dynamic_relocations().into_iter().flatten();
        let slots = relocations
            .filter(|(_, relocation)| is_syscall(relocation.target()))
            .map(|(slot, _)| slot)
            .collect();
        Self { object, slots }
    }

    fn look(&self, address: u64, size: u64) -> Inside {
        let machine = match self.object.architecture() {
            Architecture::X86_64 => Machine::X86_64,
            Architecture::Aarch64 => Machine::Aarch64,
            _ => return Inside::Unseen,
        };
        code::look(machine, self, address, usize::try_from(size).unwrap_or(0))
    }
}

impl<'data, R: ReadRef<'data>> Memory for Contents<'data, '_, R> {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let find = |segment: object::Segment<'data, '_, R>| {
            segment.data_range(address, length as u64).ok().flatten()
        };
        self.object.segments().find_map(find)
    }

    fn is_redirected(&self, slot: u64) -> bool {
        self.slots.contains(&slot)
    }
}

#[cfg(test)]
impl Symbols {
    /// An executable that imports these names.
    pub fn importing(names: &[&str]) -> Symbols {
        Symbols {
            architecture: Architecture::X86_64,
            imports: names.iter().map(|&name| name.to_owned()).collect(),
            exports: BTreeSet::new(),
            release: None,
            linked_in: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_imports_nothing_is_static() {
        assert_eq!(
            Symbols::importing(&[]).judge(),
            Err(Refusal::linked_statically())
        );
    }

    #[test]
    fn this_test_program_can_be_read() {
        let own = Symbols::of(Path::new("/proc/self/exe")).unwrap();
        assert!(own.imports.contains("close"), "{:?}", own.imports);
        assert!(Symbols::of(Path::new("/etc/passwd")).is_err());
    }
}
