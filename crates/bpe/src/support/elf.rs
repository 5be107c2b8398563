//! Imports and exports of an executable or library, from its dynamic symbol table.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use interface::code::{self, Machine, Memory};
use interface::{Executable, Inside, Maker, Refusal, Release, Verdict};
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, SectionHeader, VerdefIterator, VerneedIterator};
use object::read::{ReadCache, ReadRef};
use object::{
    Architecture, Endianness, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable,
    RelocationTarget, SectionIndex, SymbolIndex,
};

use crate::support::files::open_plain;

/// End of the error message for a file that is shorter than its own tables say.
pub const CUT_OFF: &str = "is cut off: it is shorter than its own tables say";

/// Longest name of a symbol, bytes. Without it, a table without ends of names would be searched once for each symbol.
const MAX_NAME: usize = 4096;

/// The dynamic symbols of one ELF file.
#[derive(Debug)]
pub struct Symbols {
    pub architecture: Architecture,
    pub imports: BTreeSet<String>,
    /// Those by which a plugin is known: its declarations, and its functions named `bpe_...`.
    pub exports: BTreeSet<String>,
    /// The server release, if it is a server.
    pub release: Option<Release>,
    /// Asynchronous I/O functions that are linked in statically.
    linked_in: BTreeMap<String, Inside>,
}

impl Symbols {
    /// Reads only the tables, not the whole file.
    ///
    /// # Errors
    /// A message: the file cannot be opened, or is no ELF file with readable symbols.
    pub fn of(path: &Path) -> Result<Self, String> {
        let file =
            open_plain(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        // Loading a truncated file kills the process, because its mappings extend beyond the end of the file.
        if is_cut_off(&file).map_err(|error| format!("cannot read {}: {error}", path.display()))? {
            return Err(format!("{} {CUT_OFF}", path.display()));
        }
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
        let names = Names::of(&object);
        for symbol in object.dynamic_symbols() {
            let Some(name) = names.of_symbol(symbol.index()) else {
                continue;
            };
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
            if name.ends_with("_plugin_declarations_") || name.starts_with("bpe_") {
                symbols.exports.insert(name.to_owned());
            }
        }
        symbols.release =
            binlog.and_then(|(maker, declarations)| release(&object, &cache, maker, declarations));
        if !functions.is_empty() {
            let contents = Contents::of(&object, &cache, &names);
            let inside = |(name, address, size)| (name, contents.look(address, size));
            symbols.linked_in = functions.into_iter().map(inside).collect();
        }
        Ok(symbols)
    }

    /// Judges a server executable by the same rules as the plugin inside the process.
    ///
    /// # Errors
    /// The hooks would miss some of its calls with any server option.
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

/// Whether a 64-bit ELF file is truncated. Linkers put the section table at the end, so the file must contain all of it.
fn is_cut_off(file: &File) -> io::Result<bool> {
    const CLASS: usize = 4;
    const OF_64_BITS: u8 = 2;
    let mut header = [0; 64];
    let read = file.read_at(&mut header, 0)?;
    if !header.starts_with(&object::elf::ELFMAG) || header[CLASS] != OF_64_BITS {
        return Ok(false);
    }
    let short = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    // Offset of the table, size of an entry, and number of entries.
    let offset = u64::from_le_bytes(std::array::from_fn(|n| header[40 + n]));
    let end = offset.saturating_add(short(58) * short(60));
    Ok(read < header.len() || end > file.metadata()?.len())
}

/// A version of the GNU C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(u32, u32);

impl Glibc {
    /// Parses a name such as `GLIBC_2.28`; ignores a third component.
    fn named(name: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
        let mut parts = text.split('.').map(|part| part.parse().ok());
        Some(Self(parts.next()??, parts.next()??))
    }

    /// The newest version that a file requires; `None` if it requires none or is unreadable.
    pub fn wanted_by(path: &Path) -> Option<Self> {
        Self::newest(path, |versions| {
            let mut names = Vec::new();
            let (mut needs, _) = versions.needed?;
            while let Ok(Some((_, mut from_one))) = needs.next() {
                while let Ok(Some(need)) = from_one.next() {
                    names.push(need.vna_name.get(versions.endian));
                }
            }
            Some(names)
        })
    }

    /// The newest version that a file defines; `None` if it is no C library or is unreadable.
    pub fn of(path: &Path) -> Option<Self> {
        Self::newest(path, |versions| {
            let mut names = Vec::new();
            let (mut definitions, _) = versions.defined?;
            while let Ok(Some((_, mut parts))) = definitions.next() {
                if let Ok(Some(name)) = parts.next() {
                    names.push(name.vda_name.get(versions.endian));
                }
            }
            Some(names)
        })
    }

    fn newest(path: &Path, names: impl Fn(Versions<'_>) -> Option<Vec<u32>>) -> Option<Self> {
        let cache = ReadCache::new(open_plain(path).ok()?);
        let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let (endian, sections, data) = (elf.endian(), elf.elf_section_table(), elf.data());
        let needed = sections.gnu_verneed(endian, data).ok()?;
        let defined = sections.gnu_verdef(endian, data).ok()?;
        let link = needed.as_ref().map_or_else(
            || defined.as_ref().map(|(_, link)| *link),
            |(_, link)| Some(*link),
        )?;
        let strings = sections.strings(endian, data, link).ok()?;
        let versions = Versions {
            endian,
            needed,
            defined,
        };
        let named = |offset: u32| strings.get(offset).ok().and_then(Self::named);
        names(versions)?.into_iter().filter_map(named).max()
    }
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Whether a file mapped by a process is the GNU C library, by its name. Before 2.34 the name contains the version.
pub fn is_c_library(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        name.starts_with("libc.so.6") || name.starts_with("libc-2.") && name.contains(".so")
    })
}

/// Symbol version tables of a file.
struct Versions<'data> {
    endian: Endianness,
    needed: Option<(
        VerneedIterator<'data, FileHeader64<Endianness>>,
        SectionIndex,
    )>,
    defined: Option<(
        VerdefIterator<'data, FileHeader64<Endianness>>,
        SectionIndex,
    )>,
}

/// Reads the release the way the plugin does in memory. The second word of the binary log plugin's declaration points
/// to a descriptor, which begins with the interface version.
fn release<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
    data: R,
    maker: Maker,
    declarations: u64,
) -> Option<Release> {
    let read = |address, length| bytes_at(object, data, address, length);
    let slot = declarations.checked_add(8)?;
    // A position-independent executable keeps the address in its relocations: as a number, or as the address of a replaceable symbol.
    let relocated = object
        .dynamic_relocations()
        .into_iter()
        .flatten()
        .find(|(at, _)| *at == slot);
    let relocated = relocated.and_then(|(_, relocation)| {
        let base = match relocation.target() {
            RelocationTarget::Symbol(index) => {
                let table = object.dynamic_symbol_table()?;
                table.symbol_by_index(index).ok()?.address()
            }
            _ => 0,
        };
        base.checked_add_signed(relocation.addend())
    });
    let descriptor = match relocated {
        Some(address) if address != 0 => address,
        _ => u64::from_le_bytes(read(slot, 8)?.try_into().ok()?),
    };
    // Address 0 is the file's own header.
    if descriptor == 0 {
        return None;
    }
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

/// Reads bytes by virtual address. A segment may have 40 MB, so only these are read.
fn bytes_at<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
    data: R,
    address: u64,
    length: u64,
) -> Option<&'data [u8]> {
    object.segments().find_map(|segment| {
        let within = address.checked_sub(segment.address())?;
        let (offset, size) = segment.file_range();
        let is_inside = within.checked_add(length)? <= size;
        let at = offset.checked_add(within).filter(|_| is_inside)?;
        data.read_bytes_at(at, length).ok()
    })
}

/// Names of the dynamic symbols. A server has 80,000: the table of their names is read at once.
struct Names<'data, 'file, R: ReadRef<'data>> {
    elf: Option<&'file ElfFile64<'data, Endianness, R>>,
    strings: &'data [u8],
}

impl<'data, 'file, R: ReadRef<'data>> Names<'data, 'file, R> {
    fn of(object: &'file object::File<'data, R>) -> Self {
        let elf = match object {
            object::File::Elf64(elf) => Some(elf),
            _ => None,
        };
        let strings = elf.and_then(|elf| {
            let section = elf.elf_dynamic_symbol_table().string_section();
            let section = elf.elf_section_table().section(section).ok()?;
            section.data(elf.endian(), elf.data()).ok()
        });
        Self {
            elf,
            strings: strings.unwrap_or_default(),
        }
    }

    fn of_symbol(&self, index: SymbolIndex) -> Option<&'data str> {
        let elf = self.elf?;
        let symbol = elf.elf_dynamic_symbol_table().symbol(index).ok()?;
        let begin = symbol.st_name.get(elf.endian()) as usize;
        let name = self.strings.get(begin..)?;
        let name = &name[..name.len().min(MAX_NAME)];
        CStr::from_bytes_until_nul(name).ok()?.to_str().ok()
    }
}

/// Contents of a file by virtual address.
struct Contents<'data, 'file, R: ReadRef<'data>> {
    object: &'file object::File<'data, R>,
    data: R,
    /// Slots of `syscall`, by which a statically linked library may reach the kernel.
    slots: BTreeSet<u64>,
}

impl<'data, 'file, R: ReadRef<'data>> Contents<'data, 'file, R> {
    fn of(object: &'file object::File<'data, R>, data: R, names: &Names<'data, 'file, R>) -> Self {
        let table = object.dynamic_symbol_table();
        let is_syscall = |target| match (target, &table) {
            (RelocationTarget::Symbol(index), Some(table)) => {
                names.of_symbol(index) == Some("syscall")
                    && table
                        .symbol_by_index(index)
                        .is_ok_and(|symbol| symbol.is_undefined())
            }
            _ => false,
        };
        let relocations = object.dynamic_relocations().into_iter().flatten();
        let slots = relocations
            .filter(|(_, relocation)| is_syscall(relocation.target()))
            .map(|(slot, _)| slot)
            .collect();
        Self {
            object,
            data,
            slots,
        }
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
        bytes_at(self.object, self.data, address, length as u64)
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

    #[test]
    fn a_file_that_was_cut_off_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let cut = folder.path().join("cut");
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for kept in [10, 100, whole.len() / 20, whole.len() - 1] {
            std::fs::write(&cut, &whole[..kept]).unwrap();
            let why = Symbols::of(&cut).unwrap_err();
            assert!(why.ends_with(CUT_OFF) || why.contains("no ELF"), "{why}");
        }
    }

    #[test]
    fn a_release_is_read_however_its_address_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (source, built) = (folder.path().join("a.c"), folder.path().join("a.so"));
        let declared = |interface: &str| {
            format!(
                "{interface} int binlog[2] = {{101105 << 8, 0}};\n\
                 struct {{ long kind; void *interface; }} builtin_maria_binlog_plugin[2] = {{{{1, binlog}}, {{0, 0}}}};\n"
            )
        };
        let release_of = |text: &str| {
            std::fs::write(&source, text).unwrap();
            let done = std::process::Command::new("cc")
                .args(["-shared", "-fPIC", "-o"])
                .args([&built, &source])
                .status()
                .unwrap();
            assert!(done.success());
            Symbols::of(&built).unwrap().release
        };
        // As a local symbol, and as one that other files may replace.
        for interface in ["static", ""] {
            let release = release_of(&declared(interface)).unwrap();
            assert_eq!(release.to_string(), "MariaDB 10.11.5", "{interface}");
        }
        let nowhere = "void *builtin_maria_binlog_plugin[4] = {(void *)1, 0};";
        assert_eq!(release_of(nowhere), None);
    }

    #[test]
    fn versions_of_the_c_library() {
        let own = Path::new("/proc/self/exe");
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]))
            .find(|path| is_c_library(Path::new(path)));
        let Some(library) = library else {
            println!("skipped: this program has another C library");
            return;
        };
        let (wanted, there) = (Glibc::wanted_by(own), Glibc::of(Path::new(library)));
        assert!(
            wanted >= Some(Glibc(2, 2)) && wanted <= there,
            "{wanted:?}, {there:?}"
        );
        assert_eq!(Glibc::named(b"GLIBC_2.3.4"), Some(Glibc(2, 3)));
        assert_eq!(Glibc::named(b"GLIBC_PRIVATE"), None);
        assert!(Glibc(2, 31) > Glibc(2, 4));
    }
}
