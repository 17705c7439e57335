//! Faults of `dix/detect`: what is damaged, and where between the caller and the medium.

use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use varve::block::raid::BufferFaults;
use varve::env::Random;
use varve::media::{
    Backing, BlockDevice, Capabilities, Counters, Device, Geometry, IoContext, MediaError, ProtectionTuple, RamBacking,
    Request, Transfer,
};

pub(super) const SECTOR_BYTES: u64 = 512;
const TUPLE_BYTES: u64 = ProtectionTuple::BYTES as u64;
/// Bytes of a tuple that a guard and a reference tag take: a change of the others shows in neither.
const CHECKED_TUPLE_BYTES: [usize; 6] = [0, 1, 4, 5, 6, 7];

/// A kind of fault at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The caller's data change on their way into the array.
    CallerWrite,
    /// Data, a tuple or the place of a member's write change in the array: the paper's test.
    BuiltData,
    BuiltTuple,
    BuiltPlace,
    /// The same between the array and the drive.
    SentData,
    SentTuple,
    SentPlace,
    /// The drive acknowledges a write and does not do it.
    LostWrite,
    /// The drive writes data and tuple to another place.
    MisdirectedWrite,
    /// The drive writes a part of a sector, and not its tuple.
    TornSector,
    /// A bit on the medium changes, in data or in a tuple.
    RottenData,
    RottenTuple,
    /// Parity is not that of the data, although each fits its tuple.
    StaleParity,
    /// The drive reads another place.
    MisdirectedRead,
    /// Data or a tuple change between the drive and the array.
    ReturnedData,
    ReturnedTuple,
    /// A read changes in the array before it is copied.
    ArrivedData,
    /// Data that are read to compute parity change in the array.
    ArrivedForParity,
    /// The caller's data change on their way out of the array.
    CallerRead,
}

impl Fault {
    pub(super) const ALL: [(Fault, &'static str); 19] = [
        (Fault::CallerWrite, "caller to array: a bit of data"),
        (Fault::BuiltData, "in the array, write: a bit of data"),
        (Fault::BuiltTuple, "in the array, write: a bit of a tuple"),
        (Fault::BuiltPlace, "in the array, write: its place"),
        (Fault::SentData, "array to drive: a bit of data"),
        (Fault::SentTuple, "array to drive: a bit of a tuple"),
        (Fault::SentPlace, "array to drive: its place"),
        (Fault::LostWrite, "in the drive: a lost write"),
        (Fault::MisdirectedWrite, "in the drive: a misdirected write"),
        (Fault::TornSector, "in the drive: a torn sector"),
        (Fault::RottenData, "on the medium: a bit of data"),
        (Fault::RottenTuple, "on the medium: a bit of a tuple"),
        (Fault::StaleParity, "on the medium: parity of older data"),
        (Fault::MisdirectedRead, "in the drive: a misdirected read"),
        (Fault::ReturnedData, "drive to array: a bit of data"),
        (Fault::ReturnedTuple, "drive to array: a bit of a tuple"),
        (Fault::ArrivedData, "in the array, read: a bit of data"),
        (Fault::ArrivedForParity, "in the array, read for parity: a bit of data"),
        (Fault::CallerRead, "array to caller: a bit of data"),
    ];

    /// It strikes while the caller writes, not while it reads.
    pub(super) fn strikes_writes(self) -> bool {
        !matches!(
            self,
            Fault::RottenData
                | Fault::RottenTuple
                | Fault::StaleParity
                | Fault::MisdirectedRead
                | Fault::ReturnedData
                | Fault::ReturnedTuple
                | Fault::ArrivedData
                | Fault::CallerRead
        )
    }

    /// Without tuples there is nothing to strike.
    pub(super) fn strikes_tuples_in_flight(self) -> bool {
        matches!(self, Fault::BuiltTuple | Fault::SentTuple | Fault::ReturnedTuple)
    }
}

/// The next fault to inject.
pub(super) struct Armed {
    fault: Option<Fault>,
    /// Parts of requests that are left alone first.
    spared: u64,
    random: Random,
    /// Drives returned errors of protection information.
    pub(super) drive_errors: u64,
}

impl Armed {
    pub(super) fn new(seed: u64) -> Armed {
        Armed { fault: None, spared: 0, random: Random::named(seed, "faults"), drive_errors: 0 }
    }

    /// Strikes one of the next parts.
    pub(super) fn arm(&mut self, fault: Fault, spared: u64) {
        (self.fault, self.spared) = (Some(fault), spared);
    }

    /// Removes the fault. Returns true if it had struck already.
    pub(super) fn disarm(&mut self) -> bool {
        self.fault.take().is_none()
    }

    /// The fault, if it is one of these and its part has come.
    fn take(&mut self, kinds: &[Fault]) -> Option<Fault> {
        let fault = self.fault.filter(|fault| kinds.contains(fault))?;
        match self.spared.checked_sub(1) {
            Some(left) => {
                self.spared = left;
                None
            }
            None => {
                self.fault = None;
                Some(fault)
            }
        }
    }

    pub(super) fn flip_data(&mut self, data: &mut [u8]) {
        let bit = self.random.index(data.len() * 8);
        data[bit / 8] ^= 1 << (bit % 8);
    }

    fn flip_tuple(&mut self, tuples: &mut [u8]) {
        let tuple = self.random.index(tuples.len() / ProtectionTuple::BYTES);
        let byte = CHECKED_TUPLE_BYTES[self.random.index(CHECKED_TUPLE_BYTES.len())];
        tuples[tuple * ProtectionTuple::BYTES + byte] ^= 1 << self.random.below(8);
    }
}

/// Strikes the buffers of an array.
pub(super) struct InArray(pub(super) Arc<Mutex<Armed>>);

impl BufferFaults for InArray {
    fn write_built(&self, _: usize, offset_bytes: &mut u64, data: &mut [u8], tuples: &mut [u8]) {
        let mut armed = self.0.lock();
        match armed.take(&[Fault::BuiltData, Fault::BuiltTuple, Fault::BuiltPlace]) {
            Some(Fault::BuiltData) => armed.flip_data(data),
            Some(Fault::BuiltTuple) if !tuples.is_empty() => armed.flip_tuple(tuples),
            Some(Fault::BuiltPlace) => *offset_bytes ^= data.len() as u64,
            _ => {}
        }
    }

    fn read_arrived(&self, _: usize, _: u64, data: &mut [u8], _: &mut [u8]) {
        let mut armed = self.0.lock();
        if armed.take(&[Fault::ArrivedData, Fault::ArrivedForParity]).is_some() {
            armed.flip_data(data);
        }
    }
}

/// A drive with a link, both of which can be struck.
pub(super) struct Drive {
    pub(super) inner: Device,
    pub(super) armed: Arc<Mutex<Armed>>,
    pub(super) data: Arc<RamBacking>,
    pub(super) tuples: Arc<RamBacking>,
    /// Where the data of the array begin, in bytes: what lies before is spared.
    pub(super) data_offset: u64,
}

impl Drive {
    /// Writes data and tuples to the medium, past the checks of the drive.
    fn write_raw(&self, offset_bytes: u64, data: &[u8], tuples: &[u8]) {
        // Tuples are kept as their complements.
        let tuples: Vec<u8> = tuples.iter().map(|byte| !byte).collect();
        // Memory does not fail.
        let _ = self.data.write_at(offset_bytes, data);
        let _ = self.tuples.write_at(offset_bytes / SECTOR_BYTES * TUPLE_BYTES, &tuples);
    }

    /// Flips a bit of a sector on the medium.
    pub(super) fn rot(&self, sector: u64, is_tuple: bool) {
        let mut armed = self.armed.lock();
        let mut bytes = vec![0; if is_tuple { TUPLE_BYTES } else { SECTOR_BYTES } as usize];
        let (backing, at) = match is_tuple {
            true => (&self.tuples, sector * TUPLE_BYTES),
            false => (&self.data, sector * SECTOR_BYTES),
        };
        let _ = backing.read_at(at, &mut bytes);
        if is_tuple {
            armed.flip_tuple(&mut bytes)
        } else {
            armed.flip_data(&mut bytes)
        }
        let _ = backing.write_at(at, &bytes);
    }

    /// Puts data with their tuples on the medium, as a write that the parity does not know.
    pub(super) fn replace(&self, offset_bytes: u64, data: &[u8]) {
        let Some(format) = self.inner.block.capabilities().protection else { return };
        let mut tuples = vec![0; format.tuples_bytes(data.len() as u64) as usize];
        format.generate(offset_bytes, 0, [data], &mut tuples);
        self.write_raw(offset_bytes, data, &tuples);
    }

    fn write(
        &self,
        offset_bytes: u64,
        mut data: Vec<u8>,
        tuples: Option<&[u8]>,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let mut at = offset_bytes;
        let mut tuples = tuples.map(<[u8]>::to_vec);
        {
            let mut armed = self.armed.lock();
            let kinds = [
                Fault::SentData,
                Fault::SentTuple,
                Fault::SentPlace,
                Fault::LostWrite,
                Fault::MisdirectedWrite,
                Fault::TornSector,
            ];
            match armed.take(&kinds) {
                Some(Fault::SentData) => armed.flip_data(&mut data),
                Some(Fault::SentTuple) => {
                    if let Some(tuples) = &mut tuples {
                        armed.flip_tuple(tuples);
                    }
                }
                Some(Fault::SentPlace) => at ^= data.len() as u64,
                Some(Fault::LostWrite) => return Ok(()),
                Some(Fault::MisdirectedWrite) => {
                    let format = self.inner.block.capabilities().protection;
                    let mut own = tuples.unwrap_or_default();
                    if let (Some(format), true) = (format, own.is_empty()) {
                        own.resize(format.tuples_bytes(data.len() as u64) as usize, 0);
                        format.generate(at, 0, [&data[..]], &mut own);
                    }
                    self.write_raw(at ^ data.len() as u64, &data, &own);
                    return Ok(());
                }
                Some(Fault::TornSector) => {
                    let half = SECTOR_BYTES as usize / 2;
                    let _ = self.data.write_at(at, &data[..half]);
                    return Ok(());
                }
                _ => {}
            }
        }
        let slices = [IoSlice::new(&data)];
        let transfer = Transfer::Write { data: &slices, protection: tuples.as_deref(), durable: false };
        self.inner.block.execute(&mut [Request { offset_bytes: at, transfer, outcome: Ok(()) }], context)
    }

    fn read(
        &self,
        offset_bytes: u64,
        data: &mut [u8],
        mut tuples: Option<&mut [u8]>,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let kinds = [Fault::MisdirectedRead, Fault::ReturnedData, Fault::ReturnedTuple];
        let fault = self.armed.lock().take(&kinds);
        let at = if fault == Some(Fault::MisdirectedRead) { offset_bytes ^ data.len() as u64 } else { offset_bytes };
        let mut slices = [IoSliceMut::new(&mut *data)];
        let transfer = Transfer::Read { data: &mut slices, protection: tuples.as_deref_mut() };
        self.inner.block.execute(&mut [Request { offset_bytes: at, transfer, outcome: Ok(()) }], context)?;
        let mut armed = self.armed.lock();
        match (fault, tuples) {
            (Some(Fault::ReturnedData), _) => armed.flip_data(data),
            (Some(Fault::ReturnedTuple), Some(tuples)) => armed.flip_tuple(tuples),
            _ => {}
        }
        Ok(())
    }
}

impl BlockDevice for Drive {
    fn name(&self) -> &str {
        self.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        for request in requests.iter_mut() {
            let (at, length_bytes) = (request.offset_bytes, request.length_bytes());
            request.outcome = match &mut request.transfer {
                Transfer::Write { data, protection, .. } if at >= self.data_offset => {
                    let bytes = data.iter().flat_map(|slice| slice.iter().copied()).collect();
                    self.write(at, bytes, *protection, context)
                }
                Transfer::Read { data, protection } if at >= self.data_offset => {
                    let mut bytes = vec![0; length_bytes as usize];
                    let outcome = self.read(at, &mut bytes, protection.as_deref_mut(), context);
                    let mut rest = &bytes[..];
                    for slice in data.iter_mut() {
                        let (own, later) = rest.split_at(slice.len());
                        slice.copy_from_slice(own);
                        rest = later;
                    }
                    outcome
                }
                _ => {
                    let requests = std::slice::from_mut(request);
                    let _ = self.inner.block.execute(requests, context);
                    continue;
                }
            };
            if matches!(request.outcome, Err(MediaError::Protection { .. })) {
                self.armed.lock().drive_errors += 1;
            }
        }
        requests.iter().find_map(|request| request.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.block.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}
