//! First inputs of the fuzz targets whose structures are short enough to be written down here. Included by path, by the program
//! that starts the fuzzers and by the test that runs the targets without them.

/// Specs of media.
const SPECS: &[&str] = &[
    "file:/var/lib/varve",
    "disk:100GB?model=ST500DM002,backing=file:/tmp/x.img,scale=1/64",
    "disk:10GB?logs=(nvme:1GB?model=zn540),layout=ext4",
    "zns:21GiB+smr:1TiB?band=80MiB",
    "raid6:8+2?pi=1,disk=hdd",
    "smr:16TiB?band=4MiB+zns:4GiB?zone=4KiB",
    "idler:(smr:8TiB?band=80MiB)",
    "ram:1.5GiB?faults=write/no-space@3..;sync/dropping-io@1in100,trace=/tmp/%41",
];

/// Configurations as text.
const CONFIGURATIONS: &[&str] = &[
    "[media]\nspec = \"file:/var/lib/varve\"\n[options]\nwrite_buffer_size = \"64MiB\"\n",
    "[options]\ncompression_per_level = [\"none\", \"lz4\"]\nblock_align = 4096\n",
];

/// Two requests in each format of traces.
const TRACES: &[&str] = &[
    "128166372003061629,hm,1,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,138\n",
    "89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523\n9 4892 syslogd 904265560 16 W 6 0 ff\n",
    "0,303567,3584,w,0.000000\n1,55590,3072,R,0.026214,optional\n",
    "0,R,126703661056,4096,1577808000000046\n1,W,19496058880,77824,1577808000000426\n",
    "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n",
    "  8,0    3        3     0.000002000   697  D   WS 223490 + 8 [kjournald]\n8,0 1 2 0.000009500 0 D R 16 + 16 [x]\nCPU0 (8,0):\n",
    "1000 50 read 4096 512 user_read Direct 2 - ok disk\n1100 9 sync 0 0 log Direct - - ok disk\n1200 70 write 0 4096 log - ok a\n",
    "100 0 10 2 0\n105 4 0 1 1\n",
    "W Hit 8 4 663.5 45422.0\nR Miss 16 4 607.0 1.0\n",
    "version,time,op,size,lbn\n1,5,2a,512,7\n1,6.25,28,1024,8\n",
    "time_us,offset,op,size\n10,4096,READ,512\n",
];

/// A commit of every change there is, and a checkpoint of two files, as the store of interlaced disks writes them.
const MAPS: &[&[u8]] = &[
    b"\x01\x02\0\0\0\x01\0\0\0\x01\x0a000003.log\x02\x07\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\xd3\x04\0\0\xd5\x04\0\0\
      \x01\0\x01\0\0\0\0\0\x03\x01a\x03b/c\x04\x01x\x05\x01\x03\0\0\0\x01\0\0\0",
    b"\x03\0\0\0\0\0\0\0\x02\x11\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
      \x01\0\0\0\0\0\0\0\0\x88\x13\0\0\0\0\0\0\x01a\x02\0\0\0\x09\0\0\0\x0b\0\0\0\
      \x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x03log\0\0\0\0",
];

/// An intent for one top.
const INTENTS: &[&[u8]] =
    &[b"VIMRSAVE\x01\0\0\0\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11\x09\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\
      \xd3\x04\0\0\x04\x03\x02\x01\x4d\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0"];

/// A commit of every change there is, and a checkpoint of two files, as the store of zoned devices writes them.
const BAND_TABLES: &[&[u8]] = &[
    b"\x01\x02\x00\x00\x00\x01\x00\x00\x00\x01\xff\x0a000003.log\x02\x07\x00\x00\x00\x00\x00\x00\x00\x02\
      \x00\x00\x00\x00\x01\x00\x00\x00,\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\
      \x00\x00\x00\x03\x07\x00\x00\x00\x00\x00\x00\x00\x88\x13\x00\x00\x00\x00\x00\x00\x04\x01a\x03b/c\x05\
      \x01x\x06\x14\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x07\x14\
      \x00\x00\x00\x00 \x00\x00\x00\x00\x00\x00\x08\x14\x00\x00\x00\x09\x15\x00\x00\x00\x02",
    b"\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x09\
      \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x08\x00\x00\x00\x01\x02\
      \x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\
      \x01a\x01\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\
      \x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\xff\x00\x10\x00\x00\x00\x00\x00\x00\x03log\x00\x00\x00\x00",
];

/// Sizes of a disk and its report of a conventional zone and a preferred one; sense data.
const SCSI_RESPONSES: &[&[u8]] = &[
    b"\0\0\0\0\0\0\xff\xff\0\0\x02\0\0\0\0\x80\0\0\0\0\0\0\0\0\0\0\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \x03\x22\0\0\0\0\0\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\x80\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x70\0\x05\0\0\0\0\x0a\0\0\0\0\x24\0\0\xcc\0\x01",
];

/// A trailer of 16 MiB of memory, and a slot with 8 bytes, each behind the bytes of the memory.
const MEMORY_TRAILERS: &[&[u8]] = &[
    b"\x00\x00\x00\x01\x00\x00\x00\x00VARVPMEM\x01\x00\x00\x00\x10\x00\x00\x00\
      \x00\x00\x00\x01\x00\x00\x00\x00\x00\x10\x00\x00\x05\x1cP\x8a",
    b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\xc9\xb5O\x90\
      \x05\x05\x05\x05\x05\x05\x05\x05",
];

/// Those of `target`; none if its first inputs are files of a database, or if it needs none.
pub(crate) fn of(target: &str) -> Vec<&'static [u8]> {
    let texts = match target {
        "spec" => SPECS,
        "configuration" => CONFIGURATIONS,
        "trace" => TRACES,
        _ => &[],
    };
    let structures = match target {
        "s2tmap" => MAPS,
        "intent" => INTENTS,
        "band_table" => BAND_TABLES,
        "scsi_responses" => SCSI_RESPONSES,
        "memory_trailer" => MEMORY_TRAILERS,
        _ => &[],
    };
    texts.iter().map(|text| text.as_bytes()).chain(structures.iter().copied()).collect()
}
