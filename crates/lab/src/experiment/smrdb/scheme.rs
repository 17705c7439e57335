//! The stores that are compared.

/// A tree on a store (SMRDB, section 5; those after SMRDB-SOC are ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// The leveled tree with LevelDB's defaults, on a conventional disk with the layout of a file system.
    LevelDb,
    /// The leveled tree with tables of a band.
    Loc,
    /// Two levels whose bands may overlap.
    Soc,
    /// LevelDB-like with the read-ahead and the log of ours.
    LevelDbSameIo,
    /// SMRDB-SOC with the read-ahead and the log of ours.
    SocSameIo,
    /// SMRDB-SOC with what goes past the paper: see [`super::settings`].
    Ours,
    /// Ours with shorter bursts of background work.
    OursInBursts(ShorterStall),
    /// Ours without one of the things it has and SMRDB-SOC has not.
    OursWithout(Term),
}

/// What ours has and SMRDB-SOC has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Term {
    /// Compactions and scans read far ahead.
    ReadAhead,
    /// A thread writes the log while puts go on.
    WriteBehind,
    /// A limit to how many tables overlap.
    Depth,
    /// Background work and puts are paced.
    Pacing,
    /// Ranges of keys are flushed.
    KeyRanges,
    /// Compactions become part of the tree table by table.
    Pieces,
    /// Background work moves in bursts that log writes wait for, and not in small steps.
    Bursts,
}

/// Longest time that a burst of ours may keep a put waiting, in milliseconds: the time of reading and writing 32 MiB.
pub(super) const OUR_STALL_MS: u64 = 450;

/// A shorter limit than [`OUR_STALL_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShorterStall {
    /// 50 ms: a few revolutions of the disk.
    Short,
    /// 130 ms: of the values between 110 and 160 ms, which do about the same.
    Middle,
}

impl ShorterStall {
    fn millis(self) -> u64 {
        match self {
            ShorterStall::Short => 50,
            ShorterStall::Middle => 130,
        }
    }
}

impl Term {
    const ALL: [Term; 7] =
        [Term::ReadAhead, Term::WriteBehind, Term::Depth, Term::Pacing, Term::KeyRanges, Term::Pieces, Term::Bursts];
}

impl Scheme {
    /// The paper's and ours.
    pub(super) const PAPER: [Scheme; 4] = [Scheme::LevelDb, Scheme::Loc, Scheme::Soc, Scheme::Ours];

    /// Those of figures that compare with LevelDB alone, the base first: as the paper has them and with the same input and
    /// output, ours, and ours term by term.
    pub(super) fn compared() -> Vec<Scheme> {
        let whole = [Scheme::LevelDb, Scheme::Soc, Scheme::LevelDbSameIo, Scheme::SocSameIo, Scheme::Ours];
        whole.into_iter().chain(Scheme::without_terms()).collect()
    }

    /// Ours without each of its terms.
    pub(super) fn without_terms() -> [Scheme; 7] {
        Term::ALL.map(Scheme::OursWithout)
    }

    /// Ours with shorter bursts than it has.
    pub(super) const OTHER_BURSTS: [Scheme; 2] =
        [Scheme::OursInBursts(ShorterStall::Short), Scheme::OursInBursts(ShorterStall::Middle)];

    /// Those of [`Scheme::compared`] with bursts of other lengths.
    pub(super) fn compared_with_bursts() -> Vec<Scheme> {
        Scheme::compared().into_iter().chain(Scheme::OTHER_BURSTS).collect()
    }

    /// Longest time that a burst of background work may keep a put waiting, in milliseconds; `None` without bursts.
    pub(super) fn stall_ms(self) -> Option<u64> {
        match self {
            Scheme::OursInBursts(stall) => Some(stall.millis()),
            _ => self.has(Term::Bursts).then_some(OUR_STALL_MS),
        }
    }

    /// Those of [`Scheme::compared`] with SMRDB-LOC.
    pub(super) fn all() -> Vec<Scheme> {
        let mut all = Scheme::compared();
        all.insert(1, Scheme::Loc);
        all
    }

    /// Whether it is ours, with goals of its own, and not the paper's or a part of ours.
    pub(super) fn is_past_paper(self) -> bool {
        matches!(self, Scheme::Ours | Scheme::OursInBursts(_))
    }

    /// Whether it has a term of ours.
    pub(super) fn has(self, term: Term) -> bool {
        match self {
            Scheme::LevelDb | Scheme::Loc | Scheme::Soc => false,
            Scheme::LevelDbSameIo | Scheme::SocSameIo => matches!(term, Term::ReadAhead | Term::WriteBehind),
            Scheme::Ours | Scheme::OursInBursts(_) => true,
            Scheme::OursWithout(without) => term != without,
        }
    }

    /// Its tables are in bands.
    pub(super) fn is_in_bands(self) -> bool {
        !matches!(self, Scheme::LevelDb | Scheme::LevelDbSameIo)
    }

    /// The paper's name where it has one.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::LevelDb => "LevelDB-like",
            Scheme::Loc => "SMRDB-LOC",
            Scheme::Soc => "SMRDB-SOC",
            Scheme::LevelDbSameIo => "LevelDB-like, same I/O",
            Scheme::SocSameIo => "SMRDB-SOC, same I/O",
            Scheme::Ours => "ours",
            Scheme::OursInBursts(ShorterStall::Short) => "ours, bursts of 50 ms",
            Scheme::OursInBursts(ShorterStall::Middle) => "ours, bursts of 130 ms",
            Scheme::OursWithout(Term::ReadAhead) => "ours without read-ahead",
            Scheme::OursWithout(Term::WriteBehind) => "ours without write-behind",
            Scheme::OursWithout(Term::Depth) => "ours without depth",
            Scheme::OursWithout(Term::Pacing) => "ours without pacing",
            Scheme::OursWithout(Term::KeyRanges) => "ours without key ranges",
            Scheme::OursWithout(Term::Pieces) => "ours without pieces",
            Scheme::OursWithout(Term::Bursts) => "ours without bursts",
        }
    }
}
