//! Which blocks a file has, in file order.

use super::Extent;

/// Extents of one file. Those that follow each other on the device are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExtentMap {
    /// Block of the file at which each extent starts, and the extent.
    runs: Vec<(u64, Extent)>,
}

impl ExtentMap {
    pub(super) fn of(extents: &[Extent]) -> ExtentMap {
        let mut map = ExtentMap::default();
        extents.iter().for_each(|extent| map.push(*extent));
        map
    }

    /// Blocks of the file.
    pub(super) fn blocks(&self) -> u64 {
        self.runs.last().map_or(0, |(at, extent)| at + extent.blocks)
    }

    /// Extents, as few as possible.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> {
        self.runs.iter().map(|(_, extent)| *extent)
    }

    /// Block of the device behind the last one of the file.
    pub(super) fn behind(&self) -> Option<u64> {
        self.runs.last().map(|(_, extent)| extent.start + extent.blocks)
    }

    pub(super) fn push(&mut self, extent: Extent) {
        if extent.blocks == 0 {
            return;
        }
        if self.behind() == Some(extent.start) {
            if let Some((_, last)) = self.runs.last_mut() {
                last.blocks += extent.blocks;
            }
            return;
        }
        self.runs.push((self.blocks(), extent));
    }

    /// Keeps the first `blocks` and returns the others.
    pub(super) fn trim(&mut self, blocks: u64) -> Vec<Extent> {
        let mut removed = Vec::new();
        while let Some((at, extent)) = self.runs.pop() {
            if at >= blocks {
                removed.push(extent);
                continue;
            }
            let kept = extent.blocks.min(blocks - at);
            if kept < extent.blocks {
                removed.push(Extent { start: extent.start + kept, blocks: extent.blocks - kept });
            }
            self.runs.push((at, Extent { blocks: kept, ..extent }));
            break;
        }
        removed.reverse();
        removed
    }

    /// Where byte `offset_bytes` of the file's blocks is on the device, and how many bytes from there
    /// on follow each other; `None` past the end.
    #[inline]
    pub(super) fn locate(&self, offset_bytes: u64, block_bytes: u64) -> Option<(u64, u64)> {
        let block = offset_bytes / block_bytes;
        let index = match &self.runs[..] {
            [_] => 0,
            runs => runs.partition_point(|(at, _)| *at <= block).checked_sub(1)?,
        };
        let (at, extent) = self.runs[index];
        let within = offset_bytes - at * block_bytes;
        let length = extent.blocks * block_bytes;
        (within < length).then(|| (extent.start * block_bytes + within, length - within))
    }

    /// The ranges of the device under a range of the file's blocks: device offset and length. Ends
    /// early when the file does.
    pub(super) fn pieces(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        block_bytes: u64,
    ) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, end) = (offset_bytes, offset_bytes + length_bytes);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (device_offset, contiguous) = self.locate(at, block_bytes)?;
            let length = contiguous.min(end - at);
            at += length;
            Some((device_offset, length))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, blocks: u64) -> Extent {
        Extent { start, blocks }
    }

    #[test]
    fn merges_locates_and_trims() {
        let mut map = ExtentMap::of(&[extent(10, 2), extent(12, 3), extent(40, 1), extent(7, 4)]);
        assert_eq!((map.len(), map.blocks(), map.behind()), (3, 10, Some(11)));
        assert_eq!(map.locate(0, 4096), Some((10 * 4096, 5 * 4096)));
        assert_eq!(map.locate(5 * 4096 - 1, 4096), Some((15 * 4096 - 1, 1)));
        assert_eq!(map.locate(5 * 4096, 4096), Some((40 * 4096, 4096)));
        assert_eq!(map.locate(10 * 4096, 4096), None);
        let pieces: Vec<_> = map.pieces(4 * 4096 + 512, 3 * 4096, 4096).collect();
        assert_eq!(pieces, [(14 * 4096 + 512, 3584), (40 * 4096, 4096), (7 * 4096, 4608)]);
        assert_eq!(map.trim(6), [extent(7, 4)]);
        assert_eq!(map.trim(3), [extent(13, 2), extent(40, 1)]);
        assert_eq!(map.extents().collect::<Vec<_>>(), [extent(10, 3)]);
        assert_eq!(map.trim(3), []);
        assert_eq!(map.trim(0), [extent(10, 3)]);
        assert_eq!((map.blocks(), map.locate(0, 4096)), (0, None));
    }
}
