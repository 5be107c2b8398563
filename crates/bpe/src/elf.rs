//! What an executable or library imports and exports, from its dynamic symbol table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use interface::code::{self, Machine, Memory};
use interface::{Executable, Inside, Refusal, Verdict};
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
            linked_in: BTreeMap::new(),
        };
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
            symbols.exports.insert(name.to_owned());
        }
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
        interface::judge(self)
    }
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
