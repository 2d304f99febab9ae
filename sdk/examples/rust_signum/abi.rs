// SPDX-License-Identifier: Apache-2.0
//! The part of ddh/ddh.h that an optimizer needs. The sizes are checked against the installed layouts.json when this is
//! compiled; the headers describe the fields.
#![allow(dead_code)]
use crate::layouts;
use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::ptr;

pub type Rc = i32;
pub const OK: Rc = 0;
pub const INVALID_ARGUMENT: Rc = layouts::DDH_INVALID_ARGUMENT as Rc;
pub const FAILED_PRECONDITION: Rc = layouts::DDH_FAILED_PRECONDITION as Rc;
pub const INTERNAL: Rc = layouts::DDH_INTERNAL as Rc;
pub const F32: i32 = layouts::DDH_F32 as i32;
pub const BF16: i32 = layouts::DDH_BF16 as i32;
pub const KIND_OPTIMIZER: i32 = layouts::DDH_KIND_OPTIMIZER as i32;
pub const SLOT_PER_ELEMENT: i32 = layouts::DDH_SLOT_PER_ELEMENT as i32;
pub const NEEDS_NOTHING: i32 = layouts::DDH_NEEDS_NOTHING as i32;
pub const PARAM_NO_DECAY: u32 = layouts::DDH_PARAM_NO_DECAY as u32;
pub const CAP_IN_PROCESS: u64 = layouts::DDH_CAP_IN_PROCESS;
pub const CAP_CLIP_VALUE: u64 = layouts::DDH_CAP_CLIP_VALUE;

pub enum Inst {}

#[repr(C)]
pub struct Err {
    pub struct_size: u32,
    pub code: i32,
    pub msg_cap: u32,
    pub msg_len: u32,
    pub msg: *mut c_char,
}
#[repr(C)]
pub struct Host {
    pub struct_size: u32,
    pub abi_major: u16,
    pub abi_minor: u16,
    pub h: *mut c_void,
    pub get_interface: unsafe extern "C" fn(*mut c_void, *const c_char) -> *const c_void,
}
#[repr(C)]
pub struct Create {
    pub struct_size: u32,
    pub reserved0: u32,
    pub host: *const Host,
    pub id: *const c_char,
    pub section: *const c_char,
}
#[repr(C)]
pub struct Build {
    pub struct_size: u32,
    pub abi_major: u16,
    pub abi_minor: u16,
    pub min_host_minor: u32,
    pub reserved0: u32,
    pub header_checksum: u64,
    pub libraries: *const c_void,
}
#[repr(C)]
pub struct Desc {
    pub struct_size: u32,
    pub kind: i32,
    pub id: *const c_char,
    pub version: *const c_char,
    pub summary: *const c_char,
    pub needs: *const *const c_char,
    pub wants: *const *const c_char,
    pub config_schema: *const c_char,
    pub caps: u64,
    pub uses: u64,
    pub understands: u64,
    pub native_apis: *const *const c_char,
    pub vendor: *const c_char,
    pub url: *const c_char,
    pub license: *const c_char,
    pub uses_ids: *const *const c_char,
    pub understands_ids: *const *const c_char,
    pub state_version: u32,
    pub oldest_state_version: u32,
}
#[repr(C)]
pub struct Module {
    pub struct_size: u32,
    pub n_desc: u32,
    pub desc: *const *const Desc,
    pub build: *const Build,
    pub create: unsafe extern "C" fn(*const Create, *mut *mut Inst, *mut Err) -> Rc,
    pub get_interface: unsafe extern "C" fn(*mut Inst, *const c_char) -> *const c_void,
    pub destroy: unsafe extern "C" fn(*mut Inst),
}
#[repr(C)]
pub struct ParamDesc {
    pub struct_size: u32,
    pub dtype: i32,
    pub name: *const c_char,
    pub shape: *const i64,
    pub numel: u64,
    pub n_dims: u32,
    pub owner_unit: i32,
    pub attributes: u32,
    pub init_kind: i32,
}
#[repr(C)]
pub struct ModelDesc {
    pub struct_size: u32,
    pub n_params: u32,
    pub params: *const *const ParamDesc,
}
#[repr(C)]
pub struct Range {
    pub param: i32,
    pub reserved0: u32,
    pub param_offset: u64,
    pub flat_offset: u64,
    pub numel: u64,
}
#[repr(C)]
pub struct StepBlock {
    pub struct_size: u32,
    pub skip: i32,
    pub step: i64,
    pub lr: f64,
    pub loss_scale: f64,
    pub seed_scale: f64,
    pub inv_scale: f64,
    pub clip_factor: f64,
    pub grad_norm: f64,
    pub clip_value: f64,
    pub rank_targets: f64,
    pub group_targets: f64,
}
#[repr(C)]
pub struct OptimShard {
    pub struct_size: u32,
    pub n_ranges: u32,
    pub ranges: *const Range,
    pub master: *mut f32,
    pub lowp: *mut c_void,
    pub lowp_dtype: i32,
    pub n_grads: u32,
    pub grads: *const *const f32,
    pub slots: *const *mut c_void,
    pub n_slots: u32,
    pub reserved0: u32,
}
#[repr(C)]
pub struct UpdateArgs {
    pub struct_size: u32,
    pub reserved0: u32,
    pub shard: *const OptimShard,
    pub block: *const StepBlock,
    pub param_steps: *const i64,
    pub stream: *mut c_void,
    pub param_sums: *const f64,
}
#[repr(C)]
pub struct SlotDesc {
    pub struct_size: u32,
    pub dtype: i32,
    pub name: *const c_char,
    pub extent: i32,
    pub reserved0: u32,
}
#[repr(C)]
pub struct OptimizerApi {
    pub struct_size: u32,
    pub reserved0: u32,
    pub attach: unsafe extern "C" fn(*mut Inst, *const ModelDesc, *mut Err) -> Rc,
    pub slot_count: unsafe extern "C" fn(*mut Inst) -> u32,
    pub slot: unsafe extern "C" fn(*mut Inst, u32, *mut SlotDesc, *mut Err) -> Rc,
    pub needs: unsafe extern "C" fn(*mut Inst, i32) -> i32,
    pub update: unsafe extern "C" fn(*mut Inst, *const UpdateArgs, *mut Err) -> Rc,
    pub absent: [*const c_void; 7], // sum_count to number: not offered
}
#[repr(C)]
struct ConfigApi {
    struct_size: u32,
    reserved0: u32,
    get_i64: unsafe extern "C" fn(*mut c_void, *const c_char, *mut i64, *mut Err) -> Rc,
    get_f64: unsafe extern "C" fn(*mut c_void, *const c_char, *mut f64, *mut Err) -> Rc,
}

// A struct of which this file has only the first fields is at most as large as the header's.
const _: () = assert!(size_of::<Err>() == layouts::DDH_ERR as usize);
const _: () = assert!(size_of::<Host>() == layouts::DDH_HOST as usize);
const _: () = assert!(size_of::<Create>() == layouts::DDH_CREATE as usize);
const _: () = assert!(size_of::<Build>() == layouts::DDH_BUILD as usize);
const _: () = assert!(size_of::<Desc>() == layouts::DDH_DESC as usize);
const _: () = assert!(size_of::<Module>() == layouts::DDH_MODULE as usize);
const _: () = assert!(size_of::<ParamDesc>() <= layouts::DDH_PARAM_DESC as usize);
const _: () = assert!(size_of::<ModelDesc>() <= layouts::DDH_MODEL_DESC as usize);
const _: () = assert!(size_of::<Range>() == layouts::DDH_RANGE as usize);
const _: () = assert!(size_of::<StepBlock>() == layouts::DDH_STEP_BLOCK as usize);
const _: () = assert!(size_of::<OptimShard>() == layouts::DDH_OPTIM_SHARD as usize);
const _: () = assert!(size_of::<UpdateArgs>() == layouts::DDH_UPDATE_ARGS as usize);
const _: () = assert!(size_of::<SlotDesc>() == layouts::DDH_SLOT_DESC as usize);
const _: () = assert!(size_of::<OptimizerApi>() == layouts::DDH_OPTIMIZER_API as usize);

// Their pointers are to constants.
unsafe impl Sync for Desc {}
unsafe impl Sync for Module {}
unsafe impl Sync for Build {}
unsafe impl Sync for OptimizerApi {}
pub struct List<const N: usize>(pub [*const c_char; N]); // the last is null
unsafe impl<const N: usize> Sync for List<N> {}

pub const NO_DESC: Desc = Desc {
    struct_size: 0,
    kind: 0,
    id: ptr::null(),
    version: ptr::null(),
    summary: ptr::null(),
    needs: ptr::null(),
    wants: ptr::null(),
    config_schema: ptr::null(),
    caps: 0,
    uses: 0,
    understands: 0,
    native_apis: ptr::null(),
    vendor: ptr::null(),
    url: ptr::null(),
    license: ptr::null(),
    uses_ids: ptr::null(),
    understands_ids: ptr::null(),
    state_version: 0,
    oldest_state_version: 0,
};
pub static BUILD: Build = Build {
    struct_size: layouts::DDH_BUILD,
    abi_major: layouts::DDH_ABI_MAJOR as u16,
    abi_minor: layouts::DDH_ABI_MINOR as u16,
    min_host_minor: layouts::DDH_ABI_MINOR as u32,
    reserved0: 0,
    header_checksum: layouts::HEADER_CHECKSUM,
    libraries: ptr::null(),
};

/// A literal that ends with \0.
pub const fn text(literal: &'static str) -> *const c_char {
    literal.as_ptr() as *const c_char
}
/// # Safety
/// `id` ends with a NUL.
pub unsafe fn is(id: *const c_char, literal: &str) -> bool {
    literal.bytes().enumerate().all(|(i, byte)| *id.add(i) as u8 == byte)
}

/// Fills `err`, which may be null, and returns `code`.
pub fn fail(err: *mut Err, code: Rc, sentence: &str) -> Rc {
    if let Some(err) = unsafe { err.as_mut() } {
        err.code = code;
        err.msg_len = 0;
        if !err.msg.is_null() && err.msg_cap > 0 {
            let n = sentence.len().min(err.msg_cap as usize - 1);
            unsafe {
                ptr::copy_nonoverlapping(sentence.as_ptr() as *const c_char, err.msg, n);
                *err.msg.add(n) = 0;
            }
            err.msg_len = n as u32;
        }
    }
    code
}

/// The plugin's section of options, read through ddh.config/1. `needs` names it, so it is there.
pub struct Options<'a> {
    host: &'a Host,
    api: &'a ConfigApi,
    section: String,
}
impl<'a> Options<'a> {
    pub fn of(create: &Create) -> Result<Options<'a>, String> {
        unsafe {
            let host = &*create.host;
            let api = (host.get_interface)(host.h, text("ddh.config/1\0")) as *const ConfigApi;
            let api = api.as_ref().ok_or("the host has no ddh.config/1; update ddhost")?;
            let section = std::ffi::CStr::from_ptr(create.section).to_string_lossy().into_owned();
            Ok(Options { host, api, section })
        }
    }
    fn read<T: Default>(
        &self,
        name: &str,
        get: unsafe extern "C" fn(*mut c_void, *const c_char, *mut T, *mut Err) -> Rc,
    ) -> Result<T, String> {
        let key = format!("{}.{}\0", self.section, name);
        let mut sentence = [0 as c_char; 256];
        let mut err = Err { struct_size: layouts::DDH_ERR, code: 0, msg_cap: 256, msg_len: 0, msg: sentence.as_mut_ptr() };
        let mut value = T::default();
        match unsafe { get(self.host.h, key.as_ptr() as *const c_char, &mut value, &mut err) } {
            OK => Ok(value),
            _ => Result::Err(sentence[..err.msg_len as usize].iter().map(|c| *c as u8 as char).collect()),
        }
    }
    pub fn f64(&self, name: &str) -> Result<f64, String> {
        self.read(name, self.api.get_f64)
    }
    pub fn i64(&self, name: &str) -> Result<i64, String> {
        self.read(name, self.api.get_i64)
    }
}

// ---- The ELF note, which the host reads before it loads the library.

const NOTE: &str = layouts::NOTE;
#[repr(C, align(4))]
pub struct Note {
    namesz: u32,
    descsz: u32,
    kind: u32,
    name: [u8; 8],
    desc: [u8; NOTE.len()],
}
const fn note() -> Note {
    let mut desc = [0; NOTE.len()];
    let mut i = 0;
    while i < NOTE.len() {
        desc[i] = NOTE.as_bytes()[i];
        i += 1;
    }
    Note { namesz: 7, descsz: NOTE.len() as u32, kind: 1, name: *b"ddhost\0\0", desc }
}
#[used]
#[link_section = ".note.ddhost"]
pub static ELF_NOTE: Note = note();
