// SPDX-License-Identifier: Apache-2.0
//! signum in Rust, on the C ABI alone: the same update as sdk/examples/signum, element by element, so both train to the same
//! bits. build.sh compiles it with rustc and no crates; the constants in `layouts` come from the installed layouts.json.
mod abi;
mod layouts;

use abi::*;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::{ptr, slice};

const SCHEMA: &str = concat!(
    r#"{"type": "object", "properties": {"#,
    r#""lr": {"type": "number", "minimum": 0, "default": 1e-4, "description": "learning rate of the schedule"}, "#,
    r#""momentum": {"type": "number", "minimum": 0, "default": 0.9, "description": "share of the momentum that a step keeps"}, "#,
    r#""weight_decay": {"type": "number", "minimum": 0, "default": 0, "description": "decoupled weight decay"}, "#,
    r#""decay_groups": {"type": "boolean", "default": true, "description": "true: biases and norms do not decay"}}}"#,
    "\0"
);

/// The instance. `decays` has one entry per parameter of the model.
struct Signum {
    momentum: f64,
    weight_decay: f64,
    decay_groups: bool,
    decays: Vec<bool>,
}

impl Signum {
    fn new(create: &Create) -> Result<Signum, String> {
        let options = Options::of(create)?;
        let momentum = options.f64("momentum")?;
        if momentum >= 1.0 {
            return Err(format!("optimizer.momentum is {}, which takes nothing of a gradient; give a number below 1", momentum));
        }
        let (weight_decay, decay_groups) = (options.f64("weight_decay")?, options.i64("decay_groups")? != 0);
        Ok(Signum { momentum, weight_decay, decay_groups, decays: Vec::new() })
    }

    fn attach(&mut self, model: &ModelDesc) {
        let params = unsafe { slice::from_raw_parts(model.params, model.n_params as usize) };
        let no_decay = |p: &*const ParamDesc| unsafe { (**p).attributes & PARAM_NO_DECAY != 0 };
        self.decays = params.iter().map(|p| !(self.decay_groups && no_decay(p))).collect();
    }

    /// Scalars are computed in f64 and rounded once; elements are f32. An element needs only its own value, gradient and
    /// momentum, so the result is the same in every range.
    fn update(&self, block: &StepBlock, shard: &OptimShard) -> Result<(), String> {
        if block.skip != 0 || shard.n_ranges == 0 {
            return Ok(());
        }
        if shard.n_grads == 0 || shard.n_slots != 1 {
            return Err(format!("a shard has {} gradients and {} slots; pass gradients and 1 slot", shard.n_grads, shard.n_slots));
        }
        let ranges = unsafe { slice::from_raw_parts(shard.ranges, shard.n_ranges as usize) };
        let sources = unsafe { slice::from_raw_parts(shard.grads, shard.n_grads as usize) };
        let (scale, limit) = ((block.inv_scale * block.clip_factor) as f32, block.clip_value as f32);
        let (weight, lr) = ((1.0 - self.momentum) as f32, block.lr as f32);
        for range in ranges {
            let decay = if self.decays[range.param as usize] { self.weight_decay } else { 0.0 };
            let keep = (1.0 - block.lr * decay) as f32;
            let (at, numel) = (range.flat_offset as usize, range.numel as usize);
            let (master, momentum) = unsafe {
                let slot = *shard.slots as *mut f32;
                (slice::from_raw_parts_mut(shard.master.add(at), numel), slice::from_raw_parts_mut(slot.add(at), numel))
            };
            for i in 0..numel {
                let mut g = unsafe { *sources[0].add(at + i) };
                for source in &sources[1..] {
                    g += unsafe { *source.add(at + i) };
                }
                g *= scale;
                if limit > 0.0 {
                    g = if g > limit { limit } else if g < -limit { -limit } else { g };
                }
                let m = momentum[i] + weight * (g - momentum[i]);
                let sign = if m > 0.0 { 1.0 } else if m < 0.0 { -1.0 } else { m };
                momentum[i] = m;
                master[i] = master[i] * keep - lr * sign;
            }
            if !shard.lowp.is_null() {
                store_lowp(shard, at, master)?;
            }
        }
        Ok(())
    }
}

/// Rounds to the nearest bf16, ties to even; a NaN stays one.
fn store_lowp(shard: &OptimShard, at: usize, values: &[f32]) -> Result<(), String> {
    if shard.lowp_dtype != BF16 {
        return Err("rust_signum writes no low-precision copy but bf16; give precision.compute=bf16 or fp32".to_string());
    }
    let copy = unsafe { slice::from_raw_parts_mut((shard.lowp as *mut u16).add(at), values.len()) };
    for (to, from) in copy.iter_mut().zip(values) {
        let bits = from.to_bits();
        *to = if from.is_nan() { (bits >> 16) as u16 | 0x40 } else { ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16 };
    }
    Ok(())
}

// ---- The C boundary: no panic leaves a call.

fn guard(err: *mut Err, body: impl FnOnce() -> Result<(), String>) -> Rc {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Result::Err(sentence)) => fail(err, INVALID_ARGUMENT, &sentence),
        Result::Err(_) => fail(err, INTERNAL, "rust_signum panicked; this is a bug of the plugin"),
    }
}
unsafe fn instance<'a>(inst: *mut Inst) -> &'a mut Signum {
    &mut *(inst as *mut Signum)
}

unsafe extern "C" fn create(args: *const Create, out: *mut *mut Inst, err: *mut Err) -> Rc {
    guard(err, || {
        *out = Box::into_raw(Box::new(Signum::new(&*args)?)) as *mut Inst;
        Ok(())
    })
}
unsafe extern "C" fn destroy(inst: *mut Inst) {
    drop(Box::from_raw(inst as *mut Signum));
}
unsafe extern "C" fn get_interface(_: *mut Inst, id: *const c_char) -> *const c_void {
    if is(id, "ddh.optimizer/1\0") { &OPTIMIZER as *const OptimizerApi as *const c_void } else { ptr::null() }
}
unsafe extern "C" fn attach(inst: *mut Inst, model: *const ModelDesc, err: *mut Err) -> Rc {
    guard(err, || {
        instance(inst).attach(&*model);
        Ok(())
    })
}
unsafe extern "C" fn slot_count(_: *mut Inst) -> u32 {
    1
}
unsafe extern "C" fn slot(_: *mut Inst, index: u32, out: *mut SlotDesc, err: *mut Err) -> Rc {
    guard(err, || {
        if index != 0 {
            return Err(format!("optimizer slot {} does not exist; there is one", index));
        }
        // struct_size is the caller's.
        (*out).dtype = F32;
        (*out).name = "momentum\0".as_ptr() as *const c_char;
        (*out).extent = SLOT_PER_ELEMENT;
        (*out).reserved0 = 0;
        Ok(())
    })
}
unsafe extern "C" fn needs(_: *mut Inst, _: i32) -> i32 {
    NEEDS_NOTHING
}
unsafe extern "C" fn update(inst: *mut Inst, args: *const UpdateArgs, err: *mut Err) -> Rc {
    guard(err, || instance(inst).update(&*(*args).block, &*(*args).shard))
}

static OPTIMIZER: OptimizerApi = OptimizerApi {
    struct_size: layouts::DDH_OPTIMIZER_API,
    reserved0: 0,
    attach,
    slot_count,
    slot,
    needs,
    update,
    absent: [ptr::null(); 7],
};
static NEEDS: List<2> = List(["ddh.config/1\0".as_ptr() as *const c_char, ptr::null()]);
static DESC: Desc = Desc {
    struct_size: layouts::DDH_DESC,
    kind: KIND_OPTIMIZER,
    id: text("rust_signum\0"),
    version: text("0.1.0\0"),
    summary: text("sign of a momentum, in Rust\0"),
    needs: NEEDS.0.as_ptr(),
    wants: ptr::null(),
    config_schema: text(SCHEMA),
    caps: CAP_IN_PROCESS | CAP_CLIP_VALUE,
    ..NO_DESC
};
static DESCS: [&Desc; 1] = [&DESC];
static MODULE: Module = Module {
    struct_size: layouts::DDH_MODULE,
    n_desc: 1,
    desc: &DESCS as *const [&Desc; 1] as *const *const Desc,
    build: &BUILD,
    create,
    get_interface,
    destroy,
};

/// The only exported symbol.
/// # Safety
/// The host calls it with a valid host and place for the module.
#[no_mangle]
pub unsafe extern "C" fn ddh_plugin_entry_0(host: *const Host, out: *mut *const Module, err: *mut Err) -> Rc {
    if host.is_null() || (*host).abi_major != layouts::DDH_ABI_MAJOR as u16 {
        let sentence = "the plugin speaks another major version of the ddhost ABI; rebuild it with this host's SDK";
        return fail(err, FAILED_PRECONDITION, sentence);
    }
    *out = &MODULE;
    OK
}
