# SPDX-License-Identifier: Apache-2.0
"""opens_elsewhere.py SOURCE BUILD gpt|vit|cnn|cad_mllm|kgat

For each library whose names a model has: ddhost trains a small model and writes its weights; the library opens them, finds
every name, and has ddhost's logits. Then the library writes weights of its own; ddhost loads them with train.init_from, has
the library's logits, and trains on.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, load_model, save_file

import definitions

SOURCE, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
WORK = pathlib.Path(tempfile.mkdtemp(prefix="ddhost-elsewhere-"))


def call(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(w) for w in words)}\nended with {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


def train(model, name, options, *words):
    """A run of ddhost in WORK/name; the path of its last weights."""
    weights = WORK / f"{name}.safetensors"
    call(BUILD / "ddhost", "--model", model, "--nproc", 2, "run.quiet=true", "run.sample_tokens=0", "train.eval_every=0",
         f"run.dir={WORK / name}", "--save-final", weights, *options, *words)
    return weights


def of_model(options):
    return [o for o in options if o.startswith(("model.", "data.path"))]


def our_logits(model, weights, inputs, options):
    save_file(inputs, WORK / "inputs.safetensors")
    call(BUILD / "tests/bin/model_logits", model, weights, WORK / "inputs.safetensors", WORK / "logits.safetensors",
         *of_model(options))
    return load_file(WORK / "logits.safetensors")["logits"]


def require_equal(what, ours, theirs):
    """The tolerance of the reference tensors."""
    theirs = theirs.detach().reshape(-1)
    if ours.shape != theirs.shape:
        sys.exit(f"{what}: {ours.numel()} logits here, {theirs.numel()} there")
    bound = 1e-4 * theirs.std(correction=0).item() + 1e-5
    difference = (ours - theirs).abs().max().item()
    print(f"{what}: logits differ by {difference:.1e} at most, {bound:.1e} is allowed", flush=True)
    if not difference <= bound:
        sys.exit(f"{what}: the logits differ")
    if theirs.std() < 1e-3:
        sys.exit(f"{what}: the logits are all alike, which proves nothing")


def require_other(what, a, b):
    a, b = load_file(a), load_file(b)
    if all(torch.equal(a[name], b[name]) for name in a):
        sys.exit(f"{what}: training changed no weight")


def strict_from_folder(cls, folder, config, what):
    """cls.from_pretrained that refuses names that are missing or surplus."""
    config.save_pretrained(folder)
    model, info = cls.from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            sys.exit(f"{what}: {kind} {sorted(info[kind])}")
    return model.eval()


def randomize(model):
    """Weights that differ from every initial value, and running statistics as after training."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5, generator=generator)
            elif tensor.is_floating_point():
                tensor.add_(0.05 * torch.randn(tensor.shape, generator=generator))
    return model.eval()


def both_ways(model, name, options, inputs, open_ours, write_theirs, theirs_logits, unchanged=(), from_theirs=False):
    """`open_ours(file)` gives the library's logits. `write_theirs(folder)` gives what train.init_from takes. With the options
    `unchanged` a step at a rate of zero changes no running statistics either. `from_theirs`: the first training begins with the
    library's weights too, since a fresh deep network has logits near 0."""
    folder = WORK / f"{name}-theirs"
    folder.mkdir()
    given = f"train.init_from={write_theirs(folder)}"
    weights = train(model, name, options, "--strategy", "zero3", "train.steps=3", *([given] if from_theirs else []))
    require_equal(f"{name}, from ddhost", our_logits(model, weights, inputs, options), open_ours(weights))
    loaded = train(model, f"{name}-loaded", options, "--strategy", "fsdp", "train.steps=1", "optimizer.lr=0", given,
                   *unchanged)
    trained = train(model, f"{name}-trained", options, "--strategy", "zero2", "train.steps=2", given)
    require_equal(f"{name}, to ddhost", our_logits(model, loaded, inputs, options), theirs_logits())
    require_other(name, loaded, trained)


def check_gpt():
    from transformers import GPT2Config, GPT2LMHeadModel
    text = WORK / "text.txt"
    text.write_text("".join(chr(97 + i * i % 23) for i in range(2000)))
    options = ["model.size=custom", "model.n_layer=2", "model.n_head=4", "model.n_embd=32", "model.context=20",
               "model.block_size=24", "model.vocab=67", "model.activation=gelu_tanh", "model.bias=on", f"data.path={text}",
               "data.val_fraction=0", "data.micro_batch=2"]
    config = GPT2Config(n_layer=2, n_head=4, n_embd=32, n_positions=24, vocab_size=67, resid_pdrop=0, embd_pdrop=0,
                        attn_pdrop=0, bos_token_id=None, eos_token_id=None)
    ids = torch.randint(0, 67, (3, 20), generator=torch.Generator().manual_seed(1))
    theirs = randomize(GPT2LMHeadModel(config))

    def open_ours(_):
        folder = WORK / "gpt-hf"
        call(BUILD / "ddhost", "export", WORK / "gpt/checkpoints/step-3", folder, "--layout", "transformers")
        return strict_from_folder(GPT2LMHeadModel, folder, config, "gpt")(ids).logits

    def write_theirs(folder):
        theirs.save_pretrained(folder)
        return folder

    both_ways("gpt", "gpt", options + ["checkpoint.every=3"], {"ids": ids}, open_ours, write_theirs,
              lambda: theirs(ids).logits)

    nano = randomize(definitions.NanoGpt(2, 4, 32, 24, 67))
    ours = [{"model.activation=gelu_tanh": "model.activation=gelu", "model.bias=on": "model.bias=off"}.get(o, o)
            for o in options]

    def open_in_nano(weights):
        fresh = definitions.NanoGpt(2, 4, 32, 24, 67)
        load_model(fresh, weights, strict=True)  # knows that lm_head.weight is wte's
        return fresh.eval()(ids)

    def write_nano(folder):
        torch.save({"model": nano.state_dict(), "model_args": {"n_layer": 2}, "iter_num": 3}, folder / "ckpt.pt")
        return folder / "ckpt.pt"

    both_ways("gpt", "nanogpt", ours, {"ids": ids}, open_in_nano, write_nano, lambda: nano(ids))


def check_vit():
    import timm
    import torchvision
    from transformers import ViTConfig, ViTForImageClassification
    small = ["model.size=custom", "model.n_layer=2", "model.n_head=4", "model.width=48", "model.patch=8",
             "model.dataset=made_up", "model.image_size=32", "model.channels=3", "model.classes=10", "data.micro_batch=4"]
    config = ViTConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192, image_size=32,
                       patch_size=8, num_labels=10)
    theirs = {
        "tv": torchvision.models.VisionTransformer(32, 8, 2, 4, 48, 192, num_classes=10),
        "timm": timm.create_model("vit_tiny_patch16_224", num_classes=10),
        "hf": ViTForImageClassification(config)}
    for names, model in theirs.items():
        randomize(model)
        options = small + [f"model.names={names}"]
        side = 32
        if names == "timm":
            side = 224
            options = ["model.size=Ti", "model.dataset=made_up", "model.channels=3", "model.classes=10", "data.micro_batch=2",
                       "model.names=timm"]
        pixels = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(1))

        def logits_of(m):
            out = m(pixels)
            return out.logits if hasattr(out, "logits") else out

        def open_ours(weights):
            if names == "hf":
                folder = WORK / "vit-hf-ours"
                folder.mkdir()
                save_file(load_file(weights), folder / "model.safetensors", {"format": "pt"})
                return logits_of(strict_from_folder(ViTForImageClassification, folder, config, "vit hf"))
            fresh = (torchvision.models.VisionTransformer(32, 8, 2, 4, 48, 192, num_classes=10) if names == "tv" else
                     timm.create_model("vit_tiny_patch16_224", num_classes=10))
            fresh.load_state_dict(load_file(weights), strict=True)
            return logits_of(fresh.eval())

        def write_theirs(folder):
            if names == "hf":
                model.save_pretrained(folder)
                return folder
            save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "w.safetensors")
            return folder / "w.safetensors"

        both_ways("vit", f"vit-{names}", options, {"pixels": pixels}, open_ours, write_theirs,
                  lambda: logits_of(model))


def check_cnn():
    import torchvision
    for network in ("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "vgg11", "vgg13_bn"):
        theirs = randomize(getattr(torchvision.models, network)(num_classes=10))
        options = [f"model.network={network}", "model.dataset=made_up", "model.image_size=64", "model.channels=3",
                   "model.classes=10", "data.micro_batch=4", "--optimizer", "sgd", "optimizer.lr=1e-3"]
        pixels = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))

        def open_ours(weights):
            fresh = getattr(torchvision.models, network)(num_classes=10)
            fresh.load_state_dict(load_file(weights), strict=True)
            return fresh.eval()(pixels)

        def write_theirs(folder):
            save_file({k: v.contiguous() for k, v in theirs.state_dict().items()}, folder / "w.safetensors")
            return folder / "w.safetensors"

        both_ways("cnn", network, options, {"pixels": pixels}, open_ours, write_theirs, lambda: theirs(pixels),
                  ["model.freeze=features"], from_theirs=True)
        for path in WORK.glob("*.safetensors"):
            path.unlink()


def check_dinov2():
    """The image encoder: a table of positions for 70 pixels, and images of 70 (as it is), 28 (shrunk), 98 (enlarged)."""
    from transformers import Dinov2Config, Dinov2Model
    config = Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=4, image_size=70,
                          patch_size=14, hidden_act="gelu", layer_norm_eps=1e-6, use_mask_token=False)
    theirs = randomize(Dinov2Model(config))

    def features(model, pixels):
        return model(pixels).last_hidden_state[:, 1:]

    for side in (70, 28, 98):
        pixels = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(side))
        options = ["model.size=tiny", "model.table_size=70", f"model.image_size={side}", "data.micro_batch=2",
                   'train.programs=["stage3_all"]', "data.dummy_samples=20"]

        def open_ours(weights):
            folder = WORK / f"dinov2-{side}-ours"
            folder.mkdir()
            prefix = "image_encoder."
            save_file({k[len(prefix):]: v for k, v in load_file(weights).items() if k.startswith(prefix)},
                      folder / "model.safetensors", {"format": "pt"})
            return features(strict_from_folder(Dinov2Model, folder, config, "dinov2"), pixels)

        def write_theirs(folder):
            theirs.save_pretrained(folder)
            return json.dumps([{"file": str(folder), "prefix": "image_encoder."}])

        both_ways("cad_mllm", f"dinov2-{side}", options, {"pixels": pixels}, open_ours, write_theirs,
                  lambda: features(theirs, pixels))


def check_cad_mllm():
    import peft
    from transformers import Qwen3Config, Qwen3ForCausalLM
    config = Qwen3Config(vocab_size=260, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         head_dim=16, intermediate_size=96, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                         rms_norm_eps=1e-6, tie_word_embeddings=False, max_position_embeddings=512, bos_token_id=None,
                         eos_token_id=257, pad_token_id=256)
    lora = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0, bias="none", task_type="CAUSAL_LM", target_modules=[
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    options = ["model.size=tiny", "model.init=fan_in", 'train.programs=["stage1_text"]', "data.micro_batch=5",
               "optimizer.lr=2e-2"]
    ids = torch.randint(0, 256, (2, 24), generator=torch.Generator().manual_seed(1))
    tool = [sys.executable, SOURCE / "models/cad_mllm/export_lora.py"]

    def language_model(weights):
        return {k[len("llm."):]: v for k, v in load_file(weights).items() if k.startswith("llm.")}

    def base_of(weights):
        base = Qwen3ForCausalLM(config)
        base.load_state_dict({k: v for k, v in language_model(weights).items() if ".lora_" not in k}, strict=True)
        return base

    def open_merged(weights):
        call(*tool, "merged", weights, WORK / "merged", "--alpha", 8)
        return strict_from_folder(Qwen3ForCausalLM, WORK / "merged", config, "merged")(ids).logits

    def open_adapter(weights):
        call(*tool, "adapter", weights, WORK / "adapter", "--alpha", 8)
        return peft.PeftModel.from_pretrained(base_of(weights), str(WORK / "adapter")).eval()(ids).logits

    def open_wrapped(weights):
        wrapped = peft.get_peft_model(Qwen3ForCausalLM(config), lora)
        wrapped.load_state_dict(language_model(weights), strict=True)
        return wrapped.eval()(ids).logits

    base = randomize(Qwen3ForCausalLM(config))

    def write_base(folder):
        base.save_pretrained(folder)
        return json.dumps([{"file": str(folder), "prefix": "llm.", "allow_missing": ["*lora_*"]}])

    wrapped = randomize(peft.get_peft_model(randomize(Qwen3ForCausalLM(config)), lora))

    def write_wrapped(folder):
        save_file({k: v.contiguous() for k, v in wrapped.state_dict().items()}, folder / "w.safetensors")
        return json.dumps([{"file": str(folder / "w.safetensors"), "prefix": "llm."}])

    def write_adapter(folder):
        """The frozen model and the adapters in files of their own, as they are published."""
        wrapped.save_pretrained(folder / "adapter")
        plain = {k.removeprefix("base_model.model.").replace(".base_layer.", "."): v.contiguous()
                 for k, v in wrapped.state_dict().items() if ".lora_" not in k}
        save_file(plain, folder / "base.safetensors")
        call(*tool, "import", folder / "adapter/adapter_model.safetensors", folder)
        return json.dumps([{"file": str(folder / "base.safetensors"), "prefix": "llm.", "allow_missing": ["*lora_*"]},
                           {"file": str(folder / "adapter.safetensors"), "prefix": "llm.", "allow_missing": True}])

    check_dinov2()
    inputs = {"ids": ids}
    both_ways("cad_mllm", "qwen3-merged", options, inputs, open_merged, write_base, lambda: base(ids).logits)
    both_ways("cad_mllm", "adapter", options, inputs, open_adapter, write_adapter, lambda: wrapped(ids).logits)
    both_ways("cad_mllm", "peft-names", options + ["model.names=peft"], inputs, open_wrapped, write_wrapped,
              lambda: wrapped(ids).logits)


def check_kgat():
    """The port's module opens our file, has our attention and our ranking, and back. Our A_in are the values of its sparse
    matrix, in the order of head, tail and relation."""
    data = definitions.KgatData(WORK / "data", users=30, items=40, entities=60, relations=3)
    options = [f"data.path={data.folder}", "model.layers=[16, 8]", "model.embed_dim=16", "model.relation_dim=12",
               "model.ks=[5, 10]", "--optimizer", "adam", "optimizer_kg.plugin=adam", "schedule.warmup_steps=0",
               'train.optimizers=["optimizer", "optimizer_kg"]', "data.micro_batch=20", "data.drop_last=false",
               'train.phases=[{"program":"cf","epochs":1},{"program":"kg","epochs":1},{"program":"attention"}]']

    def module(weights=None):
        fresh = definitions.Kgat(data, 16, 12, [16, 8])
        if weights is not None:
            state = load_file(weights)
            state["A_in"] = data.matrix(state["A_in"])
            fresh.load_state_dict(state, strict=True)
        return fresh.eval()

    def compare(what, weights, theirs):
        difference = (load_file(weights)["A_in"] - theirs.attention()).abs().max().item()
        theirs.A_in.data = data.matrix(theirs.attention())
        wanted = theirs.metrics((5, 10))
        out = call(BUILD / "ddhost", "eval", "--model", "kgat", "--weights", weights, *of_model(options))
        found = {words[0]: float(words[1]) for words in map(str.split, out.splitlines()) if len(words) == 2}
        print(f"{what}: attention differs by {difference:.1e}; {wanted}", flush=True)
        if not difference < 1e-6 or any(abs(found[name] - value) > 1e-6 for name, value in wanted.items()):
            sys.exit(f"{what}: ddhost has other attention or other metrics: {found}")

    def train_kgat(name, *more):
        return train("kgat", name, options, "train.eval_every_epochs=0", *more)

    weights = train_kgat("kgat", "--strategy", "zero3", "train.cycles=10", "optimizer.lr=0.02", "optimizer_kg.lr=0.02")
    compare("kgat, from ddhost", weights, module(weights))
    torch.manual_seed(1)
    theirs = module()
    given = {k: v.contiguous() for k, v in theirs.state_dict().items() if k != "A_in"}
    save_file(given, WORK / "theirs.safetensors")
    loaded = train_kgat("kgat-loaded", "--strategy", "fsdp", "train.cycles=1", "optimizer.lr=0", "optimizer_kg.lr=0",
                        f"train.init_from={WORK / 'theirs.safetensors'}")
    compare("kgat, to ddhost", loaded, theirs)


def main():
    torch.set_num_threads(1)
    with torch.no_grad():
        {"gpt": check_gpt, "vit": check_vit, "cnn": check_cnn, "cad_mllm": check_cad_mllm,
         "kgat": check_kgat}[sys.argv[3]]()


if __name__ == "__main__":
    try:
        main()
    finally:
        subprocess.run(["rm", "-rf", str(WORK)], check=False)
