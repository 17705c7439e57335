//! Other answers to a read whose checksum is wrong.

use crate::context::{Attempt, IoContext};

/// Answers that a reader asks for, at most. An array of eight data columns has as many for a whole stripe, and as many again from a
/// second parity.
pub const ANSWERS_MAX: u8 = 16;

/// Looks for a sound answer to a read whose first answer, in `data`, is wrong. `read` fills a buffer as the context says.
///
/// Returns true with a sound answer in `data`, after an accepting read, with which the device can repair the wrong copy.
/// Returns false with the first answer in `data` if the device has no sound one, or cannot be read again. A device without redundancy
/// is read once: its next answer is the first one.
///
/// The range must be what `is_sound` verifies, except for the rest of sectors at its ends: the device may write all of it.
pub fn find_sound_answer<E>(
    data: &mut [u8],
    context: &IoContext,
    mut read: impl FnMut(&mut [u8], &IoContext) -> Result<(), E>,
    mut is_sound: impl FnMut(&[u8]) -> bool,
) -> bool {
    let first = data.to_vec();
    for number in 1..=ANSWERS_MAX {
        let again = IoContext { attempt: Attempt::Again(number), ..*context };
        if read(data, &again).is_err() {
            break;
        }
        if is_sound(data) {
            let sound = data.to_vec();
            // A repair that fails is the device's affair.
            let _ = read(data, &IoContext { attempt: Attempt::Accepted, ..*context });
            data.copy_from_slice(&sound);
            return true;
        }
        if *data == first[..] {
            break;
        }
    }
    data.copy_from_slice(&first);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search over a device that has these answers; the attempts that it saw.
    fn search(answers: &[&[u8]], sound: &[u8]) -> (bool, Vec<u8>, Vec<Attempt>) {
        let (mut data, mut attempts) = (answers[0].to_vec(), Vec::new());
        let read = |data: &mut [u8], context: &IoContext| {
            attempts.push(context.attempt);
            let number = match context.attempt {
                Attempt::Again(number) => usize::from(number),
                Attempt::First | Attempt::Accepted => 0,
            };
            data.copy_from_slice(answers.get(number).unwrap_or(&answers[0]));
            Ok::<(), ()>(())
        };
        let is_found = find_sound_answer(&mut data, &IoContext::default(), read, |data| data == sound);
        (is_found, data, attempts)
    }

    #[test]
    fn a_sound_answer_is_accepted() {
        let (is_found, data, attempts) = search(&[b"one", b"two", b"six"], b"six");
        assert_eq!((is_found, &data[..]), (true, &b"six"[..]));
        assert_eq!(attempts, [Attempt::Again(1), Attempt::Again(2), Attempt::Accepted]);
    }

    #[test]
    fn a_device_without_redundancy_is_read_once() {
        let (is_found, data, attempts) = search(&[b"one"], b"six");
        assert_eq!((is_found, &data[..]), (false, &b"one"[..]));
        assert_eq!(attempts, [Attempt::Again(1)]);
    }

    #[test]
    fn the_first_answer_stays_without_a_sound_one() {
        let (is_found, data, attempts) = search(&[b"one", b"two"], b"six");
        assert_eq!((is_found, &data[..]), (false, &b"one"[..]));
        assert_eq!(attempts, [Attempt::Again(1), Attempt::Again(2)]);
        let mut data = *b"one";
        let fails = |data: &mut [u8], _: &IoContext| {
            data.fill(0);
            Err(())
        };
        assert!(!find_sound_answer(&mut data, &IoContext::default(), fails, |_| true));
        assert_eq!(&data, b"one");
    }
}
