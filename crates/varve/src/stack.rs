//! From a spec to the media a database stands on, for those who measure or compose themselves.

pub use crate::description::{
    DeviceDescription, ProtectionDescription, StackDescription, TracksDescription, ZonesDescription,
};

use crate::error::Error;
use crate::file_store::FILE_STORES;
use crate::image::{DeviceImage, MediaImage};
use crate::layer::LAYERS;
use crate::medium;
use crate::registry::{self, FileStoreKind};
use crate::spec::{Part, Spec, SpecErrorKind, SpecOption, Value};
use std::cell::RefCell;
use std::sync::Arc;
use varve_block::idler::ControlledDevice;
use varve_block::raid::Array;
use varve_engine::{Choice, Media, Options, Profile};
use varve_env::Env;
use varve_media::emulated::CompressedBacking;
use varve_media::{Device, Directory, FaultInjector, FileTrace, MadePlace, OverlayDevice};
use varve_store::{FileStore, ReadOnlyStore};

/// What a file store stands on.
pub(crate) enum Base {
    /// A directory.
    Directory(Arc<dyn Directory>),
    /// Devices, in the order of the spec.
    Devices(Vec<BuiltDevice>),
}

/// A device with what is known about it.
#[derive(Clone)]
pub(crate) struct BuiltDevice {
    pub(crate) device: Device,
    pub(crate) description: DeviceDescription,
    /// What it is made of, if it is an array.
    pub(crate) members: Option<ArrayMembers>,
}

/// An array and its members.
#[derive(Clone)]
pub(crate) struct ArrayMembers {
    pub(crate) array: Array,
    /// In the order of the spec.
    pub(crate) built: Vec<BuiltDevice>,
}

impl Base {
    /// What it is, for messages.
    fn summary(&self) -> String {
        match self {
            Base::Directory(directory) => format!("the directory '{}'", directory.name()),
            Base::Devices(devices) => {
                let names: Vec<&str> = devices.iter().map(|built| built.description.name.as_str()).collect();
                let plural = if names.len() == 1 { "" } else { "s" };
                let interlaced = devices.iter().any(|built| built.device.block.capabilities().tracks.is_some());
                let tracks = if interlaced { " with interlaced tracks" } else { "" };
                let zoned = devices.iter().any(|built| built.device.block.capabilities().zones.is_some());
                let zones = if zoned { " with zones" } else { "" };
                format!("{} device{plural}{tracks}{zones} ({})", names.len(), names.join(", "))
            }
        }
    }
}

/// What builders of kinds may use and must respect.
pub(crate) struct Construction<'a> {
    pub(crate) env: &'a Env,
    /// Make what is not there: directories, image files, the store on a blank device.
    pub(crate) create: bool,
    /// Make the store anew, whatever the device holds.
    pub(crate) format: bool,
    /// The devices are only wanted for what they say of themselves: image files are not opened, traces
    /// not begun.
    pub(crate) describe: bool,
    /// Nothing may be written to a medium, not even what opening it would write.
    pub(crate) read_only: bool,
    /// What emulated devices hold at first, unless nothing.
    pub(crate) begin_with: Option<MediaImage>,
    /// Where stores take from what the spec leaves open.
    pub(crate) profile: Profile,
    /// Layers the stack hands out.
    pub(crate) handles: RefCell<Handles>,
}

impl Construction<'_> {
    /// Something was made that was not there.
    pub(crate) fn note_made(&self, made: MadePlace) {
        self.handles.borrow_mut().made.0.push(made);
    }

    /// What the next device in compressed memory is to hold at first.
    pub(crate) fn next_image(&self) -> Option<&DeviceImage> {
        let index = self.handles.borrow().held.len();
        self.begin_with.as_ref().and_then(|image| image.device(index))
    }
}

/// What a construction made, in the order in which it did.
#[derive(Clone, Debug, Default)]
pub(crate) struct MadePlaces(Vec<MadePlace>);

impl MadePlaces {
    /// Takes away what was made for something that then was refused, as far as nothing else is in it. What cannot be
    /// taken away stays: the refusal is what is told.
    pub(crate) fn remove(&self) {
        for made in self.0.iter().rev() {
            let _ = made.remove(LOCK);
        }
    }
}

/// The file that is locked while a directory is open.
const LOCK: &str = "LOCK";

/// What a construction leaves beside the media.
#[derive(Default)]
pub(crate) struct Handles {
    pub(crate) made: MadePlaces,
    pub(crate) traces: Vec<Arc<FileTrace>>,
    pub(crate) faults: Vec<FaultInjector>,
    /// Control of the device that was made last, for layers over it.
    pub(crate) control: Option<ControlledDevice>,
    /// Compressed memory of emulated devices, in the order in which they were made.
    pub(crate) held: Vec<Arc<CompressedBacking>>,
}

/// How a stack is made from a [`Spec`].
///
/// ```
/// # fn main() -> Result<(), varve::Error> {
/// let env = varve::env::Env::sim(1);
/// let stack = varve::stack::StackBuilder::new(&env).devices(&"ram:64MiB".parse()?)?;
/// assert_eq!(stack[0].geometry().capacity_bytes, 64 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StackBuilder {
    env: Env,
    create: bool,
    format: bool,
    read_only: bool,
    begin_with: Option<MediaImage>,
    profile: Profile,
}

impl StackBuilder {
    /// A builder of stacks in `env` that makes what is not there.
    pub fn new(env: &Env) -> Self {
        let profile = Profile::default();
        StackBuilder { env: env.clone(), create: true, format: false, read_only: false, begin_with: None, profile }
    }

    /// Whether to make what is not there: the directory, the image file, the store on a blank
    /// device. Without, such a spec is [`Error::Missing`].
    pub fn create(self, create: bool) -> Self {
        StackBuilder { create, ..self }
    }

    /// Whether to lay out the store anew. Everything on the devices is lost.
    pub fn format(self, format: bool) -> Self {
        StackBuilder { format, ..self }
    }

    /// Whether to write nothing to a medium, nor make anything, whatever else was asked for. What the stores then refuse is
    /// [`varve_store::StoreError::ReadOnly`].
    pub fn read_only(self, read_only: bool) -> Self {
        StackBuilder { read_only, ..self }
    }

    /// Where stores take from what the spec leaves open: the allocation of tracks on an interlaced disk, the placement of tables on several
    /// devices.
    pub fn profile(self, profile: Profile) -> Self {
        StackBuilder { profile, ..self }
    }

    /// Lets the devices of the spec, which must be of the same sizes, begin with what those of `image` held.
    pub fn begin_with(self, image: &MediaImage) -> Self {
        StackBuilder { begin_with: Some(image.clone()), ..self }
    }

    /// The media `spec` names, ready for [`varve_engine::Db::open`].
    ///
    /// # Errors
    /// A combination nothing can be built from; what the media and stores say when they are opened.
    ///
    /// Files and directories that this call made are taken away again when it fails.
    pub fn build(&self, spec: &Spec) -> Result<Stack, Error> {
        let construction = self.construction();
        let built = StackBuilder::build_with(&construction, spec);
        if built.is_err() {
            construction.handles.into_inner().made.remove();
        }
        built
    }

    fn build_with(construction: &Construction<'_>, spec: &Spec) -> Result<Stack, Error> {
        let mut devices = Vec::new();
        let (files, keeps_logs) = open_store(construction, spec, StackRole::Files, &mut devices)?;
        let parts = if keeps_logs { &[] } else { spec.parts() };
        let log_specs = parts.iter().map(Part::logs).collect::<Result<Vec<_>, _>>()?;
        let mut log_specs = log_specs.into_iter().flatten();
        let logs = match (log_specs.next(), log_specs.next()) {
            (None, _) => None,
            (Some(logs), None) => Some(open_store(construction, &logs, StackRole::Logs, &mut devices)?.0),
            (Some(_), Some(_)) => {
                return Err(spec.error(SpecErrorKind::Combination, "the option 'logs' at most once").into());
            }
        };
        let Handles { traces, faults, made, held, control: _ } = construction.handles.take();
        Ok(Stack { spec: spec.clone(), files, logs, devices, faults, traces, made, held })
    }

    /// The devices `spec` names, without a store on them: for measuring them.
    ///
    /// # Errors
    /// [`Error::Spec`] when it names a directory; what the media say when they are opened.
    pub fn devices(&self, spec: &Spec) -> Result<Vec<StackDevice>, Error> {
        let construction = self.construction();
        let base = build_base(&construction, spec).inspect_err(|_| construction.handles.take().made.remove())?;
        match base {
            Base::Devices(devices) => {
                Ok(devices.into_iter().map(|built| StackDevice::new(StackRole::Files, built)).collect())
            }
            Base::Directory(_) => Err(not_devices(spec)),
        }
    }

    /// What the devices `spec` names, those of logs last, say of themselves. Makes and writes nothing: the image
    /// file of an emulated device is not opened, and need not be there.
    ///
    /// # Errors
    /// As [`StackBuilder::devices`]; [`Error::Missing`] when real hardware is not there.
    pub fn describe(&self, spec: &Spec) -> Result<Vec<DeviceDescription>, Error> {
        let construction = Construction { create: false, format: false, describe: true, ..self.construction() };
        let base = build_base(&construction, spec)?;
        if matches!(base, Base::Directory(_)) {
            return Err(not_devices(spec));
        }
        let kept = match spec.parts().first() {
            Some(first) => match choose_store(spec, first, &base).ok().and_then(|store| store.logs) {
                Some(logs) => Some(logs(&construction, &base, first)?),
                None => None,
            },
            None => None,
        };
        let mut devices = match base {
            Base::Devices(devices) => devices,
            Base::Directory(_) => Vec::new(),
        };
        let parts = if kept.is_some() { &[] } else { spec.parts() };
        devices.extend(kept.flatten());
        for part in parts {
            let Some(logs) = part.logs()? else { continue };
            match build_base(&construction, &logs) {
                Ok(Base::Devices(of_logs)) => devices.extend(of_logs),
                // Logs in a directory have no device.
                Ok(Base::Directory(_)) | Err(Error::Spec(_)) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(devices.into_iter().map(|built| built.description).collect())
    }

    /// Name of the store that a new database of `spec` gets, and whether the spec names it: otherwise it is the default of the medium.
    /// `None` where no store can stand on it. Makes and writes nothing, and does not open images.
    ///
    /// # Errors
    /// As [`StackBuilder::describe`].
    pub fn store_of(&self, spec: &Spec) -> Result<Option<(&'static str, bool)>, Error> {
        let construction = Construction { create: false, format: false, describe: true, ..self.construction() };
        let base = build_base(&construction, spec)?;
        let Some(first) = spec.parts().first() else { return Ok(None) };
        let is_named = first.text("store")?.is_some();
        Ok(choose_store(spec, first, &base).ok().map(|store| (store.name, is_named)))
    }

    /// What a new database of `spec` would be opened with where `options` are unset, and why. `None` where a device of the spec is real or has its
    /// bytes in a file: what such a medium decides is known once there is a store on it. Makes nothing that lasts.
    ///
    /// # Errors
    /// As [`StackBuilder::build`].
    pub fn choices_of(&self, spec: &Spec, options: &Options) -> Result<Option<Vec<Choice>>, Error> {
        let is_in_memory = |part: &Part| {
            let names_others = |option: &SpecOption| {
                matches!(option.value(), Some(Value::Spec(_))) || ["trace", "record"].contains(&option.name())
            };
            registry::is_emulated(part) && !part.options().iter().any(names_others)
        };
        if !spec.parts().iter().all(is_in_memory) {
            return Ok(None);
        }
        // A medium that no store fits on decides nothing.
        let Ok(stack) = self.clone().create(true).read_only(false).build(spec) else { return Ok(None) };
        let logs = stack.logs().map(|logs| logs.properties());
        Ok(Some(options.for_medium(stack.files().properties(), logs, None).1))
    }

    fn construction(&self) -> Construction<'_> {
        let read_only = self.read_only;
        let (create, format) = (self.create && !read_only, self.format && !read_only);
        let (begin_with, handles, profile) = (self.begin_with.clone(), RefCell::default(), self.profile);
        Construction { env: &self.env, create, format, describe: false, read_only, begin_with, profile, handles }
    }
}

/// What is expected where a directory is not enough.
pub(crate) const DEVICES_EXPECTED: &str = "a medium with devices, not a directory (whose files 'media inspect' lists)";

fn not_devices(spec: &Spec) -> Error {
    spec.error(SpecErrorKind::Combination, DEVICES_EXPECTED).into()
}

/// Builds every part of `spec` with its layers and puts them side by side.
pub(crate) fn build_base(construction: &Construction<'_>, spec: &Spec) -> Result<Base, Error> {
    let mut bases = Vec::new();
    for part in spec.parts() {
        let Some(kind) = registry::medium(part.kind()) else {
            return Err(part.kind_error(SpecErrorKind::UnknownKind, "a kind of medium").into());
        };
        let mut base = (kind.build)(construction, part)?;
        construction.handles.borrow_mut().control = None;
        for layer in LAYERS {
            if layer.is_asked_for(part) {
                base = (layer.wrap)(construction, base, part)?;
            }
        }
        bases.push(if construction.read_only { only_read(base)? } else { base });
    }
    let mut devices = Vec::new();
    let count = bases.len();
    for base in bases {
        match base {
            Base::Devices(built) => devices.extend(built),
            Base::Directory(_) if count == 1 => return Ok(base),
            Base::Directory(_) => {
                return Err(spec.error(SpecErrorKind::Combination, "a directory alone, or devices only").into());
            }
        }
    }
    Ok(Base::Devices(devices))
}

/// What stores write when they are opened stays in memory.
fn only_read(base: Base) -> Result<Base, Error> {
    let Base::Devices(devices) = base else { return Ok(base) };
    let over = |built: BuiltDevice| Ok(BuiltDevice { device: OverlayDevice::device(&built.device)?, ..built });
    Ok(Base::Devices(devices.into_iter().map(over).collect::<Result<_, Error>>()?))
}

/// The store that shall stand on `base`.
fn choose_store(spec: &Spec, first: &Part, base: &Base) -> Result<&'static FileStoreKind, Error> {
    let store = match first.text("store")? {
        Some(name) => FILE_STORES.iter().find(|store| store.name == name),
        None => {
            let preferred = FILE_STORES.iter().find(|store| (store.is_preferred)(base) && (store.accepts)(base));
            preferred.or_else(|| FILE_STORES.iter().find(|store| (store.accepts)(base)))
        }
    };
    let Some(store) = store else {
        let stores: Vec<String> = FILE_STORES.iter().map(|store| format!("{} ({})", store.name, store.needs)).collect();
        let expected = format!("media that a file store can stand on, not {}", base.summary());
        return Err(spec.error(SpecErrorKind::Combination, expected).with_known(stores).into());
    };
    if !(store.accepts)(base) {
        return Err(refused(first, store, base));
    }
    for other in FILE_STORES.iter().filter(|other| other.name != store.name) {
        for option in other.options {
            if part_has(first, option.name) && !store.options.iter().any(|own| own.name == option.name) {
                let expected = format!("an option of the store '{}', not of '{}'", store.name, other.name);
                return Err(first.value_error(option.name, expected).into());
            }
        }
    }
    Ok(store)
}

/// Opens the store of `spec`, and says whether it keeps logs apart by itself.
fn open_store(
    construction: &Construction<'_>,
    spec: &Spec,
    role: StackRole,
    devices: &mut Vec<StackDevice>,
) -> Result<(Arc<dyn FileStore>, bool), Error> {
    let Some(first) = spec.parts().first() else {
        return Err(spec.error(SpecErrorKind::Missing, "a medium").into());
    };
    if role == StackRole::Logs && first.logs()?.is_some() {
        return Err(first.value_error("logs", "no further medium of logs below a medium of logs").into());
    }
    // What no store can stand on is refused before anything is made.
    let has_hardware = |part: &Part| {
        registry::hardware_backing(part).is_some()
            || medium::is_real_memory(part)
            || registry::members_of(part).is_some_and(|members| !members.is_emulated())
            || registry::array_journal_of(part).is_some_and(|journal| !journal.is_emulated())
    };
    let is_emulated = registry::is_emulated(first) && !spec.parts().iter().any(has_hardware);
    if construction.create && is_emulated {
        let handles = RefCell::default();
        let (env, profile) = (construction.env, construction.profile);
        let (create, format, read_only, begin_with) = (false, false, false, None);
        let described = Construction { create, format, describe: true, read_only, begin_with, profile, env, handles };
        choose_store(spec, first, &build_base(&described, spec)?)?;
    }
    let base = build_base(construction, spec)?;
    let store = choose_store(spec, first, &base)?;
    // Below a medium of logs everything is inside.
    let kept = match store.logs.filter(|_| role == StackRole::Files) {
        Some(logs) => logs(construction, &base, first)?,
        None => None,
    };
    let opened = (store.open)(construction, &base, first, kept.as_ref())?;
    if let Base::Devices(built) = base {
        devices.extend(built.into_iter().map(|built| StackDevice::new(role, built)));
    }
    devices.extend(kept.map(|built| StackDevice::new(StackRole::Logs, built)));
    let opened = match construction.read_only {
        true => Arc::new(ReadOnlyStore::new(opened)),
        false => opened,
    };
    Ok((opened, store.logs.is_some()))
}

fn part_has(part: &Part, option: &str) -> bool {
    part.option(option).is_some()
}

/// The error of a store that cannot stand on `base`.
pub(crate) fn refused(part: &Part, store: &FileStoreKind, base: &Base) -> Error {
    let expected = format!("a store that can stand on {}; '{}' needs {}", base.summary(), store.name, store.needs);
    match part.option("store") {
        Some(_) => part.value_error("store", expected),
        None => part.kind_error(SpecErrorKind::Combination, expected),
    }
    .into()
}

/// What a medium of a stack is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackRole {
    /// Tables and everything else.
    Files,
    /// Write-ahead logs; under the store `imr` everything that is not a table.
    Logs,
}

impl StackRole {
    /// The role in lower case, as printed in reports.
    pub fn name(self) -> &'static str {
        match self {
            StackRole::Files => "files",
            StackRole::Logs => "logs",
        }
    }
}

/// A device of a stack: the handle for its counters, and what is known about it.
#[derive(Clone)]
pub struct StackDevice {
    role: StackRole,
    device: Device,
    description: DeviceDescription,
    array: Option<Array>,
    members: Vec<StackDevice>,
}

impl StackDevice {
    fn new(role: StackRole, built: BuiltDevice) -> Self {
        let (array, members) = match built.members {
            Some(ArrayMembers { array, built }) => (Some(array), built),
            None => (None, Vec::new()),
        };
        let members = members.into_iter().map(|member| StackDevice::new(role, member)).collect();
        StackDevice { role, device: built.device, description: built.description, array, members }
    }

    /// The handle of the array, if it is one: state of its members, scrub, replacement.
    pub fn array(&self) -> Option<&Array> {
        self.array.as_ref()
    }

    /// The members of an array, in the order of the spec, each with its counters. Empty for a device that is none.
    pub fn members(&self) -> &[StackDevice] {
        &self.members
    }

    /// What it is for.
    pub fn role(&self) -> StackRole {
        self.role
    }

    /// The device, its layers included.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Sizes.
    pub fn geometry(&self) -> &varve_media::Geometry {
        self.device.block.geometry()
    }

    /// What is known about it.
    pub fn description(&self) -> &DeviceDescription {
        &self.description
    }
}

/// The media of a spec, opened.
pub struct Stack {
    spec: Spec,
    files: Arc<dyn FileStore>,
    logs: Option<Arc<dyn FileStore>>,
    devices: Vec<StackDevice>,
    faults: Vec<FaultInjector>,
    traces: Vec<Arc<FileTrace>>,
    made: MadePlaces,
    held: Vec<Arc<CompressedBacking>>,
}

impl Stack {
    /// Compressed memory of its devices.
    pub(crate) fn held(&self) -> &[Arc<CompressedBacking>] {
        &self.held
    }

    /// Places that were made for it.
    pub(crate) fn made(&self) -> MadePlaces {
        self.made.clone()
    }

    /// What it was made from.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// What a database stands on. One database to a stack.
    pub fn media(&self) -> Media {
        Media { files: Some(self.files.clone()), logs: self.logs.clone() }
    }

    /// The store of tables and manifest, and of logs unless they have one of their own.
    pub fn files(&self) -> &Arc<dyn FileStore> {
        &self.files
    }

    /// The store of write-ahead logs, where they have one of their own.
    pub fn logs(&self) -> Option<&Arc<dyn FileStore>> {
        self.logs.as_ref()
    }

    /// Devices below the stores; none when they stand on directories.
    pub fn devices(&self) -> &[StackDevice] {
        &self.devices
    }

    /// Handles of the fault layers, in the order of the spec.
    pub fn faults(&self) -> &[FaultInjector] {
        &self.faults
    }

    /// What it is made of, for people and programs.
    pub fn description(&self) -> StackDescription {
        StackDescription {
            spec: self.spec.to_string(),
            files: self.files.name().to_owned(),
            logs: self.logs.as_ref().map(|logs| logs.name().to_owned()).or_else(|| {
                let logs = self.devices.iter().find(|device| device.role == StackRole::Logs);
                logs.map(|device| device.description.name.clone())
            }),
            devices: self.devices.iter().map(|device| device.description.clone()).collect(),
        }
    }

    /// Writes out what the trace layers hold.
    ///
    /// # Errors
    /// The first trace that could not be written.
    pub fn flush_traces(&self) -> Result<(), Error> {
        self.traces.iter().try_for_each(|trace| {
            trace.flush().map_err(|error| {
                let operation = varve_media::Operation::Write;
                Error::Media(varve_media::MediaError::io("trace", operation, 0, error))
            })
        })
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Nobody is left to tell; `flush_traces` reports.
        let _ = self.flush_traces();
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Spec {
    /// Whether every medium of the spec, that of the logs included, is emulated.
    pub fn is_emulated(&self) -> bool {
        self.parts()
            .iter()
            .all(|part| registry::is_emulated(part) && !matches!(part.logs(), Ok(Some(logs)) if !logs.is_emulated()))
    }

    /// The env that suits the media: virtual time from `seed` when all are emulated and none is to be
    /// paced by the wall clock, otherwise the real one.
    pub fn suitable_env(&self, seed: u64) -> Env {
        if self.is_emulated() && !self.is_paced() { Env::sim(seed) } else { Env::real() }
    }

    fn is_paced(&self) -> bool {
        self.parts().iter().any(|part| {
            part.has_flag("pace")
                || part.has_flag("account")
                || registry::members_of(part).is_some_and(Spec::is_paced)
                || registry::array_journal_of(part).is_some_and(Spec::is_paced)
                || matches!(part.logs(), Ok(Some(logs)) if logs.is_paced())
        })
    }
}
