//! Disassembles a function linked into an executable: does it enter the kernel through an intercepted import?
//!
//! Builds of mariadb.org have libaio linked in: `io_submit` is a function of the executable, not an import to redirect. But
//! that function calls `syscall` of the C library, which is an import. In older releases of libaio the function itself
//! contains the instruction that enters the kernel, and nothing can be redirected. The bytes of the function distinguish the
//! two.

/// How an exported function of the executable enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Only through redirected slots.
    Redirected,
    /// Directly, or in an unknown way.
    Unseen,
}

/// The instruction set of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    /// The processor of this build, if it is supported.
    pub const OWN: Option<Machine> = if cfg!(target_arch = "x86_64") {
        Some(Machine::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Machine::Aarch64)
    } else {
        None
    };
}

/// Maximum length of an analysed function, bytes; libaio's have about 80.
pub const MOST: usize = 512;

/// Memory of a program, by address.
pub trait Memory {
    /// Returns `length` bytes from `address` on; `None` if some of them are missing.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]>;
    /// Whether the slot at this address holds the address of an intercepted import.
    fn is_redirected(&self, slot: u64) -> bool;
}

/// Analyses the function of `length` bytes at `address`.
pub fn look(machine: Machine, memory: &impl Memory, address: u64, length: usize) -> Inside {
    let code = (1..=MOST)
        .contains(&length)
        .then(|| memory.bytes(address, length))
        .flatten();
    let redirected = code.is_some_and(|code| match machine {
        Machine::X86_64 => x86_64::is_redirected(memory, address, code),
        Machine::Aarch64 => aarch64::is_redirected(memory, address, code),
    });
    if redirected {
        Inside::Redirected
    } else {
        Inside::Unseen
    }
}

/// Returns the bytes at an offset, if all of them are present.
fn at<const N: usize>(code: &[u8], offset: usize) -> Option<[u8; N]> {
    code.get(offset..)?.first_chunk().copied()
}

mod x86_64 {
    use super::{Memory, at};

    /// `syscall`, `sysenter` and `int 0x80`.
    const INTO_THE_KERNEL: [[u8; 2]; 3] = [[0x0f, 0x05], [0x0f, 0x34], [0xcd, 0x80]];

    /// Instructions differ in length, so every offset is tried as the start of one. It is practically impossible that a
    /// wrong offset leads to a slot. A false kernel entry only causes a refusal.
    pub fn is_redirected(memory: &impl Memory, address: u64, code: &[u8]) -> bool {
        let enters = |pair: &[u8]| INTO_THE_KERNEL.iter().any(|known| pair == known);
        if code.windows(2).any(enters) {
            return false;
        }
        (0..code.len()).any(|offset| {
            let here = address.wrapping_add(offset as u64);
            match (code[offset], code.get(offset + 1)) {
                // call and jmp
                (0xe8 | 0xe9, _) => relative(code, offset + 1, here, 5)
                    .and_then(|stub| slot_of_stub(memory, stub))
                    .is_some_and(|slot| memory.is_redirected(slot)),
                // call *slot(%rip) and jmp *slot(%rip)
                (0xff, Some(0x15 | 0x25)) => relative(code, offset + 2, here, 6)
                    .is_some_and(|slot| memory.is_redirected(slot)),
                _ => false,
            }
        })
    }

    /// Returns the target of an instruction of `length` bytes at `here`, from its displacement at `offset`.
    fn relative(code: &[u8], offset: usize, here: u64, length: u64) -> Option<u64> {
        let distance = i32::from_le_bytes(at(code, offset)?);
        Some(
            here.wrapping_add(length)
                .wrapping_add_signed(distance.into()),
        )
    }

    /// Returns the slot through which an entry of the procedure linkage table jumps.
    fn slot_of_stub(memory: &impl Memory, stub: u64) -> Option<u64> {
        const LENGTH: usize = 11;
        const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        const BND: u8 = 0xf2;
        let mut code = memory
            .bytes(stub, LENGTH)
            .or_else(|| memory.bytes(stub, 6))?;
        let mut here = stub;
        if code.starts_with(&ENDBR64) {
            (code, here) = (&code[4..], here + 4);
        }
        if code.first() == Some(&BND) {
            (code, here) = (&code[1..], here + 1);
        }
        code.starts_with(&[0xff, 0x25])
            .then(|| relative(code, 2, here, 6))
            .flatten()
    }
}

mod aarch64 {
    use super::{Memory, at};

    pub fn is_redirected(memory: &impl Memory, address: u64, code: &[u8]) -> bool {
        let words = || (0..code.len() / 4).filter_map(|index| word(code, index));
        // svc
        if words().any(|word| word & 0xffe0_001f == 0xd400_0001) {
            return false;
        }
        words().enumerate().any(|(index, word)| {
            // bl and b
            if !matches!(word & 0xfc00_0000, 0x9400_0000 | 0x1400_0000) {
                return false;
            }
            let distance = i64::from((word << 6) as i32 >> 6) * 4;
            let stub = address
                .wrapping_add(index as u64 * 4)
                .wrapping_add_signed(distance);
            slot_of_stub(memory, stub).is_some_and(|slot| memory.is_redirected(slot))
        })
    }

    fn word(code: &[u8], index: usize) -> Option<u32> {
        at(code, index * 4).map(u32::from_le_bytes)
    }

    /// Matches `adrp x16, page; ldr x17, [x16, offset]`, optionally after a `bti c`.
    fn slot_of_stub(memory: &impl Memory, stub: u64) -> Option<u64> {
        const BTI_C: u32 = 0xd503_245f;
        let first = word(memory.bytes(stub, 4)?, 0)?;
        let stub = if first == BTI_C { stub + 4 } else { stub };
        let code = memory.bytes(stub, 8)?;
        let (adrp, ldr) = (word(code, 0)?, word(code, 1)?);
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            return None;
        }
        let pages = (adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3;
        let pages = i64::from((pages << 11) as i32 >> 11);
        let page = (stub & !0xfff).wrapping_add_signed(pages << 12);
        Some(page + u64::from(ldr >> 10 & 0xfff) * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of code by address, and the one redirected slot.
    struct Pieces<'a>(&'a [(u64, &'a [u8])], u64);

    impl Memory for Pieces<'_> {
        fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
            self.0.iter().find_map(|(start, bytes)| {
                let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
                bytes.get(offset..offset + length)
            })
        }

        fn is_redirected(&self, slot: u64) -> bool {
            slot == self.1
        }
    }

    /// `io_submit` of MariaDB 11.4.5 in the build of mariadb.org.
    const SUBMIT: [u8; 72] = [
        0x41, 0x56, 0x49, 0x89, 0xd6, 0x41, 0x55, 0x41, 0x54, 0x49, 0x89, 0xf4, 0x55, 0x48, 0x89,
        0xfd, 0x53, 0xe8, 0x2a, 0x15, 0x6f, 0xff, 0x4c, 0x89, 0xf1, 0x44, 0x8b, 0x28, 0x48, 0x89,
        0xc3, 0x4c, 0x89, 0xe2, 0x31, 0xc0, 0x48, 0x89, 0xee, 0xbf, 0xd1, 0x00, 0x00, 0x00, 0xe8,
        0xcf, 0x00, 0x6f, 0xff, 0x48, 0x89, 0xc1, 0x85, 0xc9, 0x79, 0x07, 0x8b, 0x03, 0x44, 0x89,
        0x2b, 0xf7, 0xd8, 0x5b, 0x5d, 0x41, 0x5c, 0x41, 0x5d, 0x41, 0x5e, 0xc3,
    ];
    const AT: u64 = 0x103_db30;
    /// Stub of the call above.
    const STUB: u64 = 0x72_dc30;
    const SLOT: u64 = STUB + 6 + 0x1000;

    fn stub(prefix: &[u8]) -> Vec<u8> {
        let mut stub = prefix.to_vec();
        stub.extend([0xff, 0x25]);
        let distance = SLOT as i64 - (STUB as i64 + prefix.len() as i64 + 6);
        stub.extend(i32::try_from(distance).unwrap().to_le_bytes());
        stub.extend([0x90; 11]);
        stub
    }

    fn submit_with(stub: &[u8], slot: u64) -> Inside {
        let memory = Pieces(&[(AT, &SUBMIT), (STUB, stub)], slot);
        look(Machine::X86_64, &memory, AT, SUBMIT.len())
    }

    #[test]
    fn a_call_through_the_linkage_table_is_seen() {
        for prefix in [
            &[][..],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2],
        ] {
            assert_eq!(submit_with(&stub(prefix), SLOT), Inside::Redirected);
            assert_eq!(
                submit_with(&stub(prefix), SLOT + 8),
                Inside::Unseen,
                "another import"
            );
        }
        assert_eq!(submit_with(&[0xc3; 16], SLOT), Inside::Unseen);
    }

    #[test]
    fn a_call_without_the_linkage_table_is_seen() {
        let mut code = vec![0x90, 0xff, 0x15];
        code.extend(0x100_i32.to_le_bytes());
        let slot = AT + 7 + 0x100;
        let memory = Pieces(&[(AT, &code)], slot);
        assert_eq!(
            look(Machine::X86_64, &memory, AT, code.len()),
            Inside::Redirected
        );
    }

    #[test]
    fn a_way_of_its_own_into_the_kernel_is_unseen() {
        // mov $209,%eax; syscall; ret, as in libaio up to 0.3.111, followed by code that calls `syscall`.
        let mut code = vec![0xb8, 0xd1, 0, 0, 0, 0x0f, 0x05, 0xc3];
        code.extend(SUBMIT);
        let stub = stub(&[]);
        let start = AT - 8;
        let memory = Pieces(&[(start, &code), (STUB, &stub)], SLOT);
        assert_eq!(look(Machine::X86_64, &memory, start, 8), Inside::Unseen);
        assert_eq!(
            look(Machine::X86_64, &memory, start, code.len()),
            Inside::Unseen
        );
        assert_eq!(
            look(Machine::X86_64, &memory, AT, SUBMIT.len()),
            Inside::Redirected
        );
    }

    #[test]
    fn what_cannot_be_read_is_unseen() {
        let memory = Pieces(&[(AT, &SUBMIT)], SLOT);
        for length in [0, SUBMIT.len() + 1, MOST + 1] {
            assert_eq!(look(Machine::X86_64, &memory, AT, length), Inside::Unseen);
        }
        assert_eq!(look(Machine::X86_64, &memory, 0, 8), Inside::Unseen);
    }

    #[test]
    fn arm64_is_understood() {
        const HERE: u64 = 0x40_0000;
        const TABLE: u64 = 0x30_0000;
        let words =
            |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
        let bl = 0x9400_0000 | (((TABLE as i64 - (HERE as i64 + 4)) / 4) as u32 & 0x03ff_ffff);
        let code = words(&[0xd503_201f, bl, 0xd65f_03c0]);
        // adrp x16, +3 pages; ldr x17, [x16, #0x18]; add; br x17
        let adrp = 0x9000_0010 | 3 << 29;
        let entry = [adrp, 0xf940_0211 | 3 << 10, 0x9100_6210, 0xd61f_0220];
        let slot = TABLE + 0x3000 + 0x18;
        let plain = words(&entry);
        let guarded = words(&[&[0xd503_245f][..], &entry].concat());
        for stub in [&plain, &guarded] {
            let memory = Pieces(&[(HERE, &code), (TABLE, stub)], slot);
            assert_eq!(
                look(Machine::Aarch64, &memory, HERE, 12),
                Inside::Redirected
            );
        }
        let svc = words(&[bl, 0xd400_0001]);
        let memory = Pieces(&[(HERE + 4, &svc), (TABLE, &plain)], slot);
        assert_eq!(look(Machine::Aarch64, &memory, HERE + 4, 8), Inside::Unseen);
        // A page before the stub.
        let adrp =
            0x9000_0010 | ((-1_i32 as u32) & 3) << 29 | ((-1_i32 as u32 >> 2) & 0x7_ffff) << 5;
        let back = words(&[adrp, 0xf940_0211, 0, 0]);
        let memory = Pieces(&[(HERE, &code), (TABLE, &back)], TABLE - 0x1000);
        assert_eq!(
            look(Machine::Aarch64, &memory, HERE, 12),
            Inside::Redirected
        );
    }
}
