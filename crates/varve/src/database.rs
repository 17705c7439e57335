//! Opening a database by the name of its medium.

use crate::error::Error;
use crate::saved_options;
use crate::spec::Spec;
use crate::stack::{Stack, StackBuilder};
use std::ops::Deref;
use varve_engine::{Db, Options, RepairPlan, RepairReport};
use varve_env::Env;

/// A database and the media it stands on. Derefs to [`Db`], which has the operations.
///
/// Dropping it closes the database once no other [`Db`] handle of it is left.
///
/// ```
/// # fn main() -> Result<(), varve::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let place = directory.path().join("db").display().to_string();
/// // let place = "/var/lib/varve";
/// let db = varve::Varve::open(&place)?;
/// db.put(b"layer", b"light")?;
/// assert_eq!(db.get(b"layer")?.as_deref(), Some(&b"light"[..]));
/// db.close()
/// # }
/// ```
pub struct Varve {
    // Dropped in this order: the database writes until it is closed.
    db: Db,
    stack: Stack,
    unsaved: Option<Error>,
}

impl Varve {
    /// Opens the database on the medium called `spec`, in the real world and with default options,
    /// making it when there is none.
    ///
    /// # Errors
    /// See [`DatabaseBuilder::open`].
    pub fn open(spec: &str) -> Result<Varve, Error> {
        Varve::builder().open(&spec.parse()?)
    }

    /// Opens the database on the medium called `spec` for reading, in the real world and with default options. Nothing is
    /// written to the medium, see [`DatabaseBuilder::open_read_only`].
    ///
    /// ```
    /// # fn main() -> Result<(), varve::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let place = directory.path().join("db").display().to_string();
    /// // let place = "/var/lib/varve";
    /// let writer = varve::Varve::open(&place)?;
    /// writer.put(b"layer", b"dark")?;
    /// let reader = varve::Varve::open_read_only(&place)?;
    /// assert_eq!(reader.get(b"layer")?.as_deref(), Some(&b"dark"[..]));
    /// assert_eq!(reader.put(b"layer", b"light").unwrap_err().kind(), varve::ErrorKind::ReadOnly);
    /// # writer.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`DatabaseBuilder::open_read_only`].
    pub fn open_read_only(spec: &str) -> Result<Varve, Error> {
        Varve::builder().open_read_only(&spec.parse()?)
    }

    /// Opens with choices.
    pub fn builder() -> DatabaseBuilder {
        DatabaseBuilder::default()
    }

    /// The database. A clone outlives this value, and keeps the database open.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Why the options it was opened with could not be saved with it, for those who ask later; none when they are, or
    /// when the bytes of the medium are gone with the process anyway. The database works all the same.
    pub fn unsaved_options(&self) -> Option<&Error> {
        self.unsaved.as_ref()
    }

    /// What it stands on.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Writes a database equal to the state of now onto the medium called `target`, which must hold
    /// none. Shares files instead of copying where both media can.
    ///
    /// # Errors
    /// As [`Db::checkpoint`], and what the target says when it is opened.
    pub fn checkpoint_to(&self, target: &Spec) -> Result<(), Error> {
        let stack = StackBuilder::new(self.db.env()).build(target)?;
        self.db.checkpoint(&*stack.media().files).inspect_err(|_| stack.made().remove())?;
        stack.flush_traces()
    }

    /// Stops background work, closes, and tells whether that went well.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(self) -> Result<(), Error> {
        self.db.close()?;
        self.stack.flush_traces()
    }
}

impl Deref for Varve {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

/// How a database is opened.
///
/// ```
/// use varve::{Options, Varve, env::Env};
///
/// # fn main() -> Result<(), varve::Error> {
/// // On a disk that is not there, in virtual time.
/// let db = Varve::builder()
///     .env(&Env::sim(7))
///     .options(Options { write_buffer_size: 1 << 20, ..Options::default() })
///     .open(&"ram:256MiB".parse()?)?;
/// db.put(b"key", b"value")?;
/// db.close()
/// # }
/// ```
#[derive(Clone, Default)]
pub struct DatabaseBuilder {
    env: Option<Env>,
    options: Options,
    format: bool,
}

impl DatabaseBuilder {
    /// The env to live in; the real one unless said.
    pub fn env(self, env: &Env) -> Self {
        DatabaseBuilder { env: Some(env.clone()), ..self }
    }

    /// Options of the database. `create_if_missing` also says whether the medium (directory, image
    /// file, file store on a blank device) is made.
    pub fn options(self, options: Options) -> Self {
        DatabaseBuilder { options, ..self }
    }

    /// Whether to lay out the file store anew. Everything on the devices is lost.
    pub fn format(self, format: bool) -> Self {
        DatabaseBuilder { format, ..self }
    }

    /// Opens the database on the medium `spec`.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is nothing and nothing is to be made; see
    /// [`Error::kind`] for the rest.
    pub fn open(self, spec: &Spec) -> Result<Varve, Error> {
        // What is refused makes nothing.
        self.options.validate()?;
        let env = self.env.unwrap_or_else(Env::real);
        let stack = StackBuilder::new(&env).create(self.options.create_if_missing).format(self.format).build(spec)?;
        let db = Db::open(&env, stack.media(), self.options.clone()).inspect_err(|_| stack.made().remove())?;
        let media = stack.media();
        let logs = media.logs.as_ref().unwrap_or(&media.files);
        // What is gone with the process is read by nobody later.
        let lasts = stack.devices().iter().all(|device| device.description().keeps_bytes());
        let unsaved = match lasts {
            true => saved_options::save(&*media.files, &**logs, &self.options).err(),
            false => None,
        };
        Ok(Varve { db, stack, unsaved })
    }

    /// Opens the database on the medium `spec` as it is now, for reading: see [`Db::open_read_only`]. Not a byte is written
    /// to the medium and nothing is made, so permission to read is enough.
    ///
    /// A directory may be open for writing in another process. A device or an image that is open for writing is
    /// refused; several may read one at the same time.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is nothing; `Locked` (see [`Error::kind`]) for a device that is open for writing;
    /// see [`Error::kind`] for the rest.
    pub fn open_read_only(self, spec: &Spec) -> Result<Varve, Error> {
        let env = self.env.unwrap_or_else(Env::real);
        let stack = StackBuilder::new(&env).read_only(true).build(spec)?;
        let db = Db::open_read_only(&env, stack.media(), self.options)?;
        Ok(Varve { db, stack, unsaved: None })
    }
}

/// Opens the database on the medium called `spec`, in the real world, making it when there is none
/// and the options say so.
///
/// # Errors
/// See [`DatabaseBuilder::open`].
pub fn open(spec: &str, options: Options) -> Result<Varve, Error> {
    Varve::builder().options(options).open(&spec.parse()?)
}

/// What [`repair`] would do. Changes nothing.
///
/// # Errors
/// As those of [`repair`].
pub fn plan_repair(env: &Env, spec: &Spec, options: Options) -> Result<RepairPlan, Error> {
    let stack = StackBuilder::new(env).create(false).build(spec)?;
    let plan = varve_engine::plan_repair(env, &stack.media(), &options)?;
    stack.flush_traces()?;
    Ok(plan)
}

/// [`repair`] that keeps no copy of what was sound: see [`varve_engine::repair_and_discard`].
///
/// # Errors
/// As those of [`repair`].
pub fn repair_and_discard(env: &Env, spec: &Spec, options: Options) -> Result<RepairReport, Error> {
    let stack = StackBuilder::new(env).create(false).build(spec)?;
    let report = varve_engine::repair_and_discard(env, stack.media(), options)?;
    stack.flush_traces()?;
    Ok(report)
}

/// Makes a damaged database usable again with what can be read of it. Every original is kept beside it, see
/// [`varve_engine::repair`].
///
/// # Errors
/// [`Error::Missing`] when there is nothing; what the media say; see [`varve_engine::repair`].
pub fn repair(env: &Env, spec: &Spec, options: Options) -> Result<RepairReport, Error> {
    let stack = StackBuilder::new(env).create(false).build(spec)?;
    let report = varve_engine::repair(env, stack.media(), options)?;
    stack.flush_traces()?;
    Ok(report)
}
