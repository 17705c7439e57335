//! How a database is opened, and mended.

use crate::database::Varve;
use crate::error::Result;
use crate::image::MediaImage;
use crate::saved_options;
use crate::spec::Spec;
use crate::stack::{Stack, StackBuilder};
use std::path::Path;
use varve_engine::{Choice, Db, Options, RepairPlan, RepairReport, TreeKind};
use varve_env::Env;

/// How a database is opened, or repaired: choices, and then one call that does it.
///
/// ```
/// use varve::{Options, Varve, env::Env};
///
/// # fn main() -> varve::Result<()> {
/// // On a disk that is not there, in virtual time.
/// let db = Varve::builder()
///     .env(&Env::sim(7))
///     .options(Options { write_buffer_size: 1 << 20, ..Options::default() })
///     .open_spec(&"ram:256MiB".parse()?)?;
/// db.put("key", "value")?;
/// db.close()
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "nothing is opened before open or open_spec"]
pub struct DatabaseBuilder {
    env: Option<Env>,
    options: Options,
    format: bool,
    read_only: bool,
    begin_with: Option<MediaImage>,
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

    /// Whether to open it as it is now, for reading. Not a byte is written to the medium and nothing is made, whatever else
    /// was asked for, so permission to read is enough; options of creating and writing mean nothing.
    ///
    /// A directory may be open for writing in another process: this one sees one consistent state, which holds every write
    /// acknowledged before it was opened, and goes on seeing that one. A device or an image that is open for writing is
    /// refused; several may read one at the same time.
    ///
    /// ```
    /// # fn main() -> varve::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("db");
    /// // let path = "/var/lib/varve";
    /// let writer = varve::Varve::open(&path)?;
    /// writer.put("layer", "dark")?;
    /// let reader = varve::Varve::builder().read_only(true).open(&path)?;
    /// assert_eq!(reader.get("layer")?.as_deref(), Some(&b"dark"[..]));
    /// assert_eq!(reader.put("layer", "light").unwrap_err().kind(), varve::ErrorKind::ReadOnly);
    /// # writer.close()
    /// # }
    /// ```
    pub fn read_only(self, read_only: bool) -> Self {
        DatabaseBuilder { read_only, ..self }
    }

    /// Lets the emulated devices of the spec, which must be of the same sizes, begin with what those of `image` held; what is
    /// written then is their own. See [`Varve::close_into_image`].
    pub fn begin_with(self, image: &MediaImage) -> Self {
        DatabaseBuilder { begin_with: Some(image.clone()), ..self }
    }

    /// Opens the database in the directory at `path`.
    ///
    /// # Errors
    /// [`Error::Spec`](crate::Error::Spec) for a path that begins as the name of a medium does (`ram:`), which
    /// [`DatabaseBuilder::open_spec`] takes, and `./ram:64MiB` is a directory of that name; as
    /// [`DatabaseBuilder::open_spec`] for the rest.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Varve> {
        self.open_spec(&Spec::of_directory(path.as_ref())?)
    }

    /// Opens the database on the medium `spec`.
    ///
    /// # Errors
    /// By [`Error::kind`](crate::Error::kind): `NotFound` when there is nothing and nothing is to be made;
    /// `InvalidArgument` for options and specs that cannot be used; `Foreign` for files of another program or a newer
    /// version; `Corruption` for damage; `Locked` when it is open elsewhere; `NoSpace` and `Io` as the medium says. What
    /// was made for a database that does not open is taken away again.
    pub fn open_spec(self, spec: &Spec) -> Result<Varve> {
        // What is refused makes nothing.
        self.options.validate()?;
        let env = self.env.unwrap_or_else(Env::real);
        let builder = StackBuilder::new(&env).create(self.options.create_if_missing).format(self.format);
        let builder = builder.profile(self.options.profile);
        let builder = match &self.begin_with {
            Some(image) => builder.begin_with(image),
            None => builder,
        };
        let stack = builder.read_only(self.read_only).build(spec)?;
        let (options, choices) = for_stack(&self.options, &stack);
        if self.read_only {
            let db = Db::open_read_only(&env, stack.media(), options)?;
            return Ok(Varve::of_parts(db, stack, None, choices));
        }
        let db = Db::open(&env, stack.media(), options.clone()).inspect_err(|_| stack.made().remove())?;
        let logs = stack.logs().unwrap_or(stack.files());
        // What is gone with the process is read by nobody later.
        let lasts = stack.devices().iter().all(|device| device.description().keeps_bytes());
        let unsaved = match lasts {
            true => saved_options::save(&**stack.files(), &**logs, &options, &choices).err(),
            false => None,
        };
        Ok(Varve::of_parts(db, stack, unsaved, choices))
    }

    /// What [`DatabaseBuilder::repair`] would do. Changes nothing.
    ///
    /// # Errors
    /// As those of [`DatabaseBuilder::repair`].
    pub fn plan_repair(self, spec: &Spec) -> Result<RepairPlan> {
        // Not even what an open of its stores would write.
        let (env, stack) = self.to_repair(spec, true)?;
        let plan = varve_engine::plan_repair(&env, &stack.media(), &for_stack(&self.options, &stack).0)?;
        stack.flush_traces()?;
        Ok(plan)
    }

    /// Makes a damaged database on the medium `spec` usable again with what can be read of it. Every original is kept beside
    /// it, see [`varve_engine::repair`].
    ///
    /// # Errors
    /// `NotFound` when there is nothing; what the media say; see [`varve_engine::repair`].
    pub fn repair(self, spec: &Spec) -> Result<RepairReport> {
        let (env, stack) = self.to_repair(spec, false)?;
        let report = varve_engine::repair(&env, stack.media(), for_stack(&self.options, &stack).0)?;
        stack.flush_traces()?;
        Ok(report)
    }

    /// [`DatabaseBuilder::repair`] that keeps no copy of what was sound: see [`varve_engine::repair_and_discard`].
    ///
    /// # Errors
    /// As those of [`DatabaseBuilder::repair`].
    pub fn repair_and_discard(self, spec: &Spec) -> Result<RepairReport> {
        let (env, stack) = self.to_repair(spec, false)?;
        let report = varve_engine::repair_and_discard(&env, stack.media(), for_stack(&self.options, &stack).0)?;
        stack.flush_traces()?;
        Ok(report)
    }

    fn to_repair(&self, spec: &Spec, read_only: bool) -> Result<(Env, Stack)> {
        let env = self.env.clone().unwrap_or_else(Env::real);
        let builder = StackBuilder::new(&env).create(false).read_only(read_only).profile(self.options.profile);
        let stack = builder.build(spec)?;
        Ok((env, stack))
    }
}

/// `options` with a value for what is unset, by the medium and by the database that is on it.
fn for_stack(options: &Options, stack: &Stack) -> (Options, Vec<Choice>) {
    let files = &**stack.files();
    let logs = stack.logs().map(|logs| logs.properties());
    let existing = || {
        // The manifest decides; what was saved with the database tells the tree where a repair finds no manifest.
        stack.media().existing_tree().or_else(|| {
            let saved = saved_options::saved_options(files).ok().flatten()?;
            let name = saved.get("tree")?.as_str()?;
            TreeKind::ALL.into_iter().find(|tree| tree.name() == name)
        })
    };
    let existing = if options.tree.is_none() { existing() } else { None };
    options.for_medium(files.properties(), logs, existing)
}
