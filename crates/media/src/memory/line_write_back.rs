//! Writing lines of the processor's caches back to memory.

use super::persistence::LineInstruction;

impl LineInstruction {
    /// The best that this processor has; `None` on one that is no x86 of 64 bits.
    pub(super) fn detect() -> Option<LineInstruction> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{__cpuid, __cpuid_count};
            // CPUID.07H:EBX bits 23 and 24, CPUID.01H:EDX bit 19 (Intel SDM, volume 2, CPUID).
            #[allow(unused_unsafe)]
            // SAFETY: every processor of this architecture has CPUID.
            let (leaves, features, extended) = unsafe { (__cpuid(0).eax, __cpuid(1).edx, __cpuid_count(7, 0).ebx) };
            if leaves >= 7 && extended & (1 << 24) != 0 {
                return Some(LineInstruction::Clwb);
            }
            if leaves >= 7 && extended & (1 << 23) != 0 {
                return Some(LineInstruction::Clflushopt);
            }
            (features & (1 << 19) != 0).then_some(LineInstruction::Clflush)
        }
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Starts write-back of the line at an address. [`wait`] waits for it.
    ///
    /// # Safety
    /// The address is mapped, and the processor has the instruction, as [`LineInstruction::detect`]
    /// says.
    #[inline]
    pub(super) unsafe fn write_back(self, address: *const u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instructions change no contents and touch no registers; the rest is up to the
        // caller.
        unsafe {
            use std::arch::asm;
            match self {
                LineInstruction::Clwb => asm!("clwb [{0}]", in(reg) address, options(nostack, preserves_flags)),
                LineInstruction::Clflushopt => {
                    asm!("clflushopt [{0}]", in(reg) address, options(nostack, preserves_flags));
                }
                LineInstruction::Clflush => asm!("clflush [{0}]", in(reg) address, options(nostack, preserves_flags)),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}

/// Waits for the write-backs that this thread started (SFENCE); what it stored before is durable or
/// visible first.
#[inline]
pub(super) fn wait() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction orders stores and does nothing else.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Each instruction that the processor has leaves contents as they are.
    #[test]
    fn lines_are_written_back_and_keep_their_contents() {
        let best = LineInstruction::detect().expect("every x86 of 64 bits has clflush");
        let from_best = [LineInstruction::Clwb, LineInstruction::Clflushopt, LineInstruction::Clflush]
            .into_iter()
            .skip_while(|instruction| *instruction != best);
        let data = [7_u8; 256];
        for instruction in from_best {
            for line in data.chunks(64) {
                // SAFETY: the address is that of a local variable; the processor has the best and
                // those before it in time.
                unsafe { instruction.write_back(line.as_ptr()) };
            }
            wait();
            assert_eq!(data, [7; 256]);
        }
    }
}
