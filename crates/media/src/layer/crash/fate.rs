//! The policy: which unsynced operations a variant keeps.

use super::CrashVariant;
use super::content::{ContentChange, Pending};
use varve_env::Random;

/// What became of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Lost,
    /// Sector by sector, as [`FateChooser::sector`] says.
    Torn,
}

/// Decides for one image. Operations are known by their sequence numbers.
pub(crate) struct FateChooser {
    variant: CrashVariant,
    random: Random,
    /// Sequence number that divides a prefix from a suffix.
    cut: u64,
    /// Sequence number of the newest write.
    last_write: Option<u64>,
}

impl FateChooser {
    /// For an image of `variant` where these changes are not durable: of names, by their sequence
    /// numbers, and of contents, both in any order.
    pub(crate) fn new<'a>(
        variant: CrashVariant,
        seed: u64,
        names: impl IntoIterator<Item = u64>,
        contents: impl IntoIterator<Item = &'a Pending>,
    ) -> Self {
        let mut sequences: Vec<u64> = names.into_iter().collect();
        let mut last_write = None;
        for pending in contents {
            sequences.push(pending.sequence);
            if matches!(pending.change, ContentChange::Write { .. } | ContentChange::Store { .. }) {
                last_write = last_write.max(Some(pending.sequence));
            }
        }
        sequences.sort_unstable();
        let mut random = Random::named(seed, "crash");
        let cut = sequences.get(random.index(sequences.len() + 1)).copied().unwrap_or(u64::MAX);
        FateChooser { variant, random, cut, last_write }
    }

    /// The fate of a write, discard or truncate.
    pub(crate) fn content(&mut self, sequence: u64) -> Fate {
        let kept_if = |kept| if kept { Fate::Kept } else { Fate::Lost };
        match self.variant {
            CrashVariant::KeepAll | CrashVariant::ContentsWithoutNames => Fate::Kept,
            CrashVariant::DropAll | CrashVariant::LengthsWithoutData | CrashVariant::NamesWithoutContents => Fate::Lost,
            CrashVariant::KeepPrefix if sequence == self.cut => Fate::Torn,
            CrashVariant::KeepPrefix => kept_if(sequence < self.cut),
            CrashVariant::KeepSuffix => kept_if(sequence >= self.cut),
            CrashVariant::DropRandom => kept_if(self.random.chance(1, 2)),
            CrashVariant::TearRandom => match self.random.below(4) {
                0 => Fate::Kept,
                1 => Fate::Lost,
                _ => Fate::Torn,
            },
            CrashVariant::TearLast if Some(sequence) == self.last_write => Fate::Torn,
            CrashVariant::TearLast => Fate::Kept,
        }
    }

    /// Whether a change of names arrived, as far as the variant is concerned.
    pub(crate) fn name(&mut self, sequence: u64) -> bool {
        match self.variant {
            CrashVariant::KeepAll
            | CrashVariant::TearLast
            | CrashVariant::LengthsWithoutData
            | CrashVariant::NamesWithoutContents => true,
            CrashVariant::DropAll | CrashVariant::ContentsWithoutNames => false,
            CrashVariant::KeepPrefix => sequence < self.cut,
            CrashVariant::KeepSuffix => sequence >= self.cut,
            CrashVariant::DropRandom | CrashVariant::TearRandom => self.random.chance(1, 2),
        }
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Whether one sector of a torn write arrived.
    pub(crate) fn sector(&mut self) -> bool {
        self.random.chance(1, 2)
    }

    /// Whether a write of this fate, its end lost, lengthened its file all the same.
    pub(crate) fn length_without_data(&mut self, fate: Fate) -> bool {
        match (self.variant, fate) {
            (CrashVariant::LengthsWithoutData, _) => true,
            (CrashVariant::TearRandom, _) | (_, Fate::Torn) => self.random.chance(1, 2),
            _ => false,
        }
    }
}
