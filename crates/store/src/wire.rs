//! Reading and writing little-endian fields.

/// Appends fields to a vector.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The name of a file: a byte count and as many bytes of UTF-8.
    pub(crate) fn name(&mut self, name: &str) {
        self.u8(name.len() as u8);
        self.bytes(name.as_bytes());
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.bytes
    }
}

/// Takes fields from the front of bytes that may be anything; `None` at the end.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count)?;
        self.rest = tail;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// Every item that `bytes` consist of. The error is the offset of the first that is none.
    pub(crate) fn all<T>(bytes: &'a [u8], mut item: impl FnMut(&mut Self) -> Option<T>) -> Result<Vec<T>, usize> {
        let mut reader = Reader::new(bytes);
        let mut items = Vec::new();
        while reader.remaining() > 0 {
            let offset = bytes.len() - reader.remaining();
            items.push(item(&mut reader).ok_or(offset)?);
        }
        Ok(items)
    }

    /// The name of a file; `None` for one that no file may have.
    pub(crate) fn name(&mut self) -> Option<String> {
        let length = usize::from(self.u8()?);
        let name = std::str::from_utf8(self.bytes(length)?).ok()?;
        crate::name::check(name).ok()?;
        Some(name.to_owned())
    }

    /// The same, also of a file that is the store's own: its name begins with a NUL, as no name of a user does.
    pub(crate) fn own_or_user_name(&mut self) -> Option<String> {
        let length = usize::from(self.u8()?);
        let name = std::str::from_utf8(self.bytes(length)?).ok()?;
        crate::name::check(name.strip_prefix('\0').unwrap_or(name)).ok()?;
        Some(name.to_owned())
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
