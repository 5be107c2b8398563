//! Redirects imports of the server's executable: stores hook addresses into its GOT slots.
//!
//! The main program's relocation tables (`DT_JMPREL` and `DT_RELA`) name the address slots of every imported function. Full
//! RELRO makes these slots read-only, so their page becomes writable for one 8-byte store and read-only again. The imports
//! are judged before the first slot is changed.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use interface::code::{self, Machine, Memory};
use interface::{Executable, Inside, Refusal};
use libc::{Elf64_Rela, Elf64_Sym, dl_phdr_info};

/// An import to redirect.
pub struct Import {
    /// Symbol names of the call (with and without large-file suffix).
    pub names: &'static [&'static str],
    /// The hook.
    pub hook: usize,
    /// Receives the original address of the slot, to chain to.
    pub original: &'static AtomicUsize,
}

/// Reason why nothing was patched.
#[derive(Debug, PartialEq, Eq)]
pub enum PatchError {
    /// The hooks would not see some of the server's I/O.
    Refused(Refusal),
    /// A page of the GOT could not be made writable.
    Protect { errno: i32 },
}

impl std::fmt::Display for PatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PatchError::Refused(refusal) => refusal.fmt(f),
            PatchError::Protect { errno } => write!(
                f,
                "the server's import table could not be made writable (errno {errno}). Find the security policy that \
                 forbids mprotect, and allow it for the server."
            ),
        }
    }
}

impl From<Refusal> for PatchError {
    fn from(refusal: Refusal) -> PatchError {
        PatchError::Refused(refusal)
    }
}

#[cfg(target_arch = "x86_64")]
mod relocation {
    /// Absolute address of a symbol.
    pub const ABSOLUTE: u32 = 1;
    pub const GLOB_DAT: u32 = 6;
    pub const JUMP_SLOT: u32 = 7;
}

#[cfg(target_arch = "aarch64")]
mod relocation {
    pub const ABSOLUTE: u32 = 257;
    pub const GLOB_DAT: u32 = 1025;
    pub const JUMP_SLOT: u32 = 1026;
}

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

#[repr(C)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// Maximum number of program segments.
const MAX_SEGMENTS: usize = 8;

/// A memory range of the program, and its `PF_*` flags.
#[derive(Clone, Copy, Default)]
struct Segment {
    start: usize,
    end: usize,
    flags: u32,
}

impl Segment {
    fn holds(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// The main program's layout in memory.
#[derive(Clone, Copy, Default)]
struct Program {
    base: usize,
    dynamic: usize,
    relro: (usize, usize),
    segments: [Segment; MAX_SEGMENTS],
}

impl Program {
    fn is_code(&self, address: usize) -> bool {
        let code = |segment: &&Segment| segment.flags & libc::PF_X != 0;
        self.segments.iter().filter(code).any(|s| s.holds(address))
    }
}

/// A slot of the GOT that holds the address of an import.
#[derive(Clone, Copy, Debug)]
struct Slot {
    address: usize,
    import: usize,
}

extern "C" fn first_object(info: *mut dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker hands us a valid record, and `out` is the Program of `main_program`.
    unsafe {
        let info = &*info;
        let program = &mut *out.cast::<Program>();
        program.base = info.dlpi_addr as usize;
        let mut segments = program.segments.iter_mut();
        for index in 0..info.dlpi_phnum as usize {
            let header = &*info.dlpi_phdr.add(index);
            let start = program.base + header.p_vaddr as usize;
            let end = start + header.p_memsz as usize;
            match header.p_type {
                libc::PT_DYNAMIC => program.dynamic = start,
                libc::PT_GNU_RELRO => program.relro = (start, end),
                libc::PT_LOAD => {
                    if let Some(segment) = segments.next() {
                        let flags = header.p_flags;
                        *segment = Segment { start, end, flags };
                    }
                }
                _ => {}
            }
        }
    }
    1 // the first object is the main program: stop here
}

fn main_program() -> Option<Program> {
    let mut program = Program::default();
    // SAFETY: the callback only writes into `program`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut program).cast()) };
    (program.dynamic != 0).then_some(program)
}

/// Imports and exports of the main program.
pub struct Symbols {
    program: Program,
    imports: BTreeSet<Box<str>>,
    /// Slots of `syscall`, through which a linked-in library may reach the kernel.
    syscall_slots: Vec<usize>,
}

impl Executable for Symbols {
    fn imports(&self, name: &str) -> bool {
        self.imports.contains(name)
    }

    fn inside(&self, name: &str) -> Option<Inside> {
        const SYMBOL: c_int = 1; // RTLD_DL_SYMENT
        if self.imports(name) {
            return None;
        }
        let name = CString::new(name).ok()?;
        // SAFETY: lookups with a valid string and structures for the answers. The symbol stays valid, since the main program
        // is never unloaded.
        let (address, length) = unsafe {
            let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            if !self.program.is_code(address as usize) {
                return None; // not found, or in another library
            }
            let mut info: libc::Dl_info = std::mem::zeroed();
            let mut symbol: *mut c_void = std::ptr::null_mut();
            let found = libc::dladdr1(address, &mut info, &mut symbol, SYMBOL) != 0;
            let symbol = symbol.cast::<Elf64_Sym>();
            let length = (found && info.dli_saddr == address && !symbol.is_null())
                .then(|| (*symbol).st_size as usize);
            (address as u64, length.unwrap_or(0))
        };
        Some(match Machine::OWN {
            Some(machine) => code::look(machine, self, address, length),
            None => Inside::Unseen,
        })
    }
}

impl Memory for Symbols {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(length)?;
        let readable = |segment: &Segment| {
            segment.flags & libc::PF_R != 0
                && segment.flags & libc::PF_W == 0
                && segment.start <= start
                && end <= segment.end
        };
        // SAFETY: inside a readable segment of the main program that never changes.
        self.program
            .segments
            .iter()
            .any(readable)
            .then(|| unsafe { std::slice::from_raw_parts(start as *const u8, length) })
    }

    fn is_redirected(&self, slot: u64) -> bool {
        self.syscall_slots.iter().any(|&known| known as u64 == slot)
    }
}

/// Calls `visit(symbol name, slot address)` for every relocation of an imported symbol.
fn visit_slots(program: &Program, mut visit: impl FnMut(&CStr, usize)) -> Result<(), Refusal> {
    let (mut strings, mut symbols) = (0usize, 0usize);
    let (mut rela, mut rela_bytes, mut jmprel, mut jmprel_bytes) = (0usize, 0usize, 0usize, 0usize);
    // glibc relocates the pointers of the dynamic section in place; other C libraries do not.
    let address = |value: u64| {
        let value = value as usize;
        if value < program.base {
            program.base + value
        } else {
            value
        }
    };
    let mut entry = program.dynamic as *const Dyn;
    loop {
        // SAFETY: the dynamic section ends with a null tag.
        let Dyn { tag, value } = unsafe { std::ptr::read(entry) };
        match tag {
            0 => break,
            DT_STRTAB => strings = address(value),
            DT_SYMTAB => symbols = address(value),
            DT_RELA => rela = address(value),
            DT_RELASZ => rela_bytes = value as usize,
            DT_JMPREL => jmprel = address(value),
            DT_PLTRELSZ => jmprel_bytes = value as usize,
            _ => {}
        }
        // SAFETY: not the last entry, see above.
        entry = unsafe { entry.add(1) };
    }
    if strings == 0 || symbols == 0 || (rela == 0 && jmprel == 0) {
        return Err(Refusal::linked_statically());
    }
    for (table, bytes) in [(rela, rela_bytes), (jmprel, jmprel_bytes)] {
        if table == 0 {
            continue;
        }
        for index in 0..bytes / size_of::<Elf64_Rela>() {
            // SAFETY: inside the table whose size the dynamic section states. Symbol and string indices come from the same
            // linker, and the dynamic linker has used them already.
            unsafe {
                let relocation = &*(table as *const Elf64_Rela).add(index);
                let kind = (relocation.r_info & 0xffff_ffff) as u32;
                let symbol = (relocation.r_info >> 32) as usize;
                if symbol == 0
                    || !matches!(
                        kind,
                        relocation::ABSOLUTE | relocation::GLOB_DAT | relocation::JUMP_SLOT
                    )
                {
                    continue;
                }
                let symbol = &*(symbols as *const Elf64_Sym).add(symbol);
                if symbol.st_shndx != 0 {
                    continue; // its own
                }
                let name = CStr::from_ptr((strings + symbol.st_name as usize) as *const _);
                visit(name, program.base + relocation.r_offset as usize);
            }
        }
    }
    Ok(())
}

/// Patches every slot of every import that the program has. If `judge` refuses the imports, nothing is changed. Returns the
/// result of `judge`.
pub fn patch<T>(
    imports: &[Import],
    judge: impl FnOnce(&Symbols) -> Result<T, Refusal>,
) -> Result<T, PatchError> {
    let program = main_program().ok_or_else(Refusal::linked_statically)?;
    let mut slots: Vec<Slot> = Vec::new();
    let mut found: Vec<&'static str> = Vec::new();
    let mut symbols = Symbols {
        program,
        imports: BTreeSet::new(),
        syscall_slots: Vec::new(),
    };
    visit_slots(&program, |name, address| {
        let Ok(name) = name.to_str() else { return };
        if !symbols.imports.contains(name) {
            symbols.imports.insert(name.into());
        }
        if name == "syscall" {
            symbols.syscall_slots.push(address);
        }
        for (index, import) in imports.iter().enumerate() {
            if let Some(known) = import.names.iter().find(|known| **known == name) {
                slots.push(Slot {
                    address,
                    import: index,
                });
                if !found.contains(known) {
                    found.push(known);
                }
            }
        }
    })?;
    let verdict = judge(&symbols)?;

    // Originals first: from the first store on, threads may call the hooks.
    for slot in &slots {
        let import = &imports[slot.import];
        // SAFETY: a GOT slot found above: mapped, aligned, eight bytes.
        let mut original = unsafe { std::ptr::read_volatile(slot.address as *const usize) };
        if original == import.hook {
            continue; // patched by an earlier life of the plugin
        }
        if program.is_code(original) {
            // Not resolved yet: the slot points to a stub that would resolve it and overwrite the hook's address.
            let name = import
                .names
                .iter()
                .find(|name| found.contains(name))
                .unwrap_or(&import.names[0]);
            let name = CString::new(*name).unwrap_or_default();
            // SAFETY: a plain symbol lookup with a valid string.
            original = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
        }
        if original != 0 {
            import.original.store(original, Ordering::SeqCst);
        }
    }
    show_to_all_threads();
    for slot in &slots {
        let import = &imports[slot.import];
        if import.original.load(Ordering::SeqCst) != 0 {
            store(&program, slot.address, import.hook)?;
        }
    }
    Ok(verdict)
}

/// Publishes earlier stores: a thread that sees a later store also sees them. The server's own load of a slot orders
/// nothing. An ARM64 processor that predicts the call's destination may load the original before the slot, and so before it
/// was stored.
fn show_to_all_threads() {
    let commands = [
        libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
        libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
    ];
    // SAFETY: takes numbers only.
    let all = commands.map(|command| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) });
    if all != [0, 0] {
        // Refused, or unknown to the kernel (before 4.14): sleeps longer than any load takes.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the loader has made a page of the program read-only: it rounds both ends of the range down. If pages are larger
/// than the linker assumed, the last of them also holds variables and stays writable.
fn is_read_only(relro: (usize, usize), start: usize, page: usize) -> bool {
    debug_assert!(page.is_power_of_two() && start % page == 0);
    let down = |address: usize| address & !(page - 1);
    (down(relro.0)..down(relro.1)).contains(&start)
}

fn store(program: &Program, address: usize, value: usize) -> Result<(), PatchError> {
    // SAFETY: plain C call.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    debug_assert_eq!(address % size_of::<usize>(), 0, "the store is not atomic");
    let start = address & !(page - 1);
    let read_only = is_read_only(program.relro, start, page);
    // SAFETY: the page holds the GOT of the main program, which stays mapped. A slot is aligned to eight bytes, so the store
    // is atomic for threads that call through it at this moment.
    unsafe {
        if read_only
            && libc::mprotect(
                start as *mut c_void,
                page,
                libc::PROT_READ | libc::PROT_WRITE,
            ) != 0
        {
            return Err(PatchError::Protect {
                errno: *libc::__errno_location(),
            });
        }
        (*(address as *const AtomicUsize)).store(value, Ordering::SeqCst);
        if read_only {
            libc::mprotect(start as *mut c_void, page, libc::PROT_READ);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    static ORIGINAL: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn never() {}

    #[test]
    fn refusal_patches_nothing() {
        let imports = [Import {
            names: &["malloc"],
            hook: never as *const () as usize,
            original: &ORIGINAL,
        }];
        let refusal = Refusal::linked_statically();
        let result = patch(&imports, |symbols| {
            assert!(symbols.imports("malloc") && !symbols.imports("no_such_call"));
            Err::<(), _>(refusal.clone())
        });
        assert_eq!(result, Err(PatchError::Refused(refusal)));
        assert_eq!(ORIGINAL.load(Ordering::SeqCst), 0);
        // The heap still works: `malloc` was not touched.
        assert_eq!(vec![1u8; 100_000].len(), 100_000);
    }

    #[test]
    fn page_with_variables_stays_writable() {
        let (relro, small, large) = ((0x1f000, 0x25000), 0x1000, 0x4000);
        let read_only = |start, page| is_read_only(relro, start, page);
        assert!(read_only(0x1f000, small) && read_only(0x24000, small));
        assert!(!read_only(0x1e000, small) && !read_only(0x25000, small));
        assert!(read_only(0x1c000, large) && read_only(0x20000, large));
        assert!(!read_only(0x24000, large));
    }

    #[test]
    fn bytes_lie_in_one_segment_that_never_changes() {
        let result = patch(&[], |symbols| {
            let segments = symbols.program.segments.iter();
            for &Segment { start, end, flags } in segments.filter(|segment| segment.end != 0) {
                let is_read = |at: usize, length| symbols.bytes(at as u64, length).is_some();
                let is_constant = flags & libc::PF_R != 0 && flags & libc::PF_W == 0;
                assert_eq!(is_read(start, end - start), is_constant);
                assert!(!is_read(end - 1, 2) && !is_read(start.wrapping_sub(1), 2));
            }
            Ok(())
        });
        assert_eq!(result, Ok(()));
    }

    #[test]
    fn export_of_another_library_is_not_inside() {
        let inside = |symbols: &Symbols| {
            Ok((
                symbols.inside("fts_open"),
                symbols.inside("no_such_call"),
                symbols.inside("malloc"),
            ))
        };
        assert_eq!(patch(&[], inside), Ok((None, None, None)));
    }

    static GETPPID: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn someone() -> i32 {
        4242
    }

    #[test]
    fn import_is_redirected_and_original_kept() {
        // SAFETY: a plain C call; it also makes the test program import the function.
        let before = unsafe { libc::getppid() };
        let imports = [Import {
            names: &["getppid"],
            hook: someone as *const () as usize,
            original: &GETPPID,
        }];
        patch(&imports, |symbols| {
            assert!(symbols.imports("getppid"));
            Ok(())
        })
        .expect("a program with a GOT");
        // SAFETY: a plain C call, and the original with its own type.
        unsafe {
            assert_eq!(libc::getppid(), 4242);
            let original: extern "C" fn() -> i32 =
                std::mem::transmute(GETPPID.load(Ordering::SeqCst));
            assert_eq!(original(), before);
        }
    }
}
