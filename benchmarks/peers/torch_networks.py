# SPDX-License-Identifier: Apache-2.0
"""The models of models_vs_torch.py as eager PyTorch writes them, with ddhost's names of parameters. forward() gives the loss of a
batch; the frozen parts of cad_mllm run without gradients."""
import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, net, label_smoothing=0.0):
        super().__init__()
        self.net, self.label_smoothing = net, label_smoothing

    def forward(self, batch):
        return F.cross_entropy(self.net(batch[0]), batch[1], label_smoothing=self.label_smoothing)


def vit(size):
    from torchvision.models import VisionTransformer
    layers, heads, width, patch, side = {"small": (6, 4, 64, 4, 32), "Ti": (12, 3, 192, 16, 224), "B": (12, 12, 768, 16, 224)}[size]
    return VisionTransformer(side, patch, layers, heads, width, 4 * width, num_classes=10)


class CnnLstm(nn.Module):
    """configs/cnn_moving.json: convolutions of each frame (B, T, 1, 28, 28), two LSTMs over the frames."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.lstm1, self.lstm2 = nn.LSTM(16 * 7 * 7, 64, batch_first=True), nn.LSTM(64, 64, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x):
        B, T = x.shape[:2]
        x = x.flatten(0, 1)
        for conv in (self.conv1, self.conv2):
            x = F.max_pool2d(F.relu(conv(x)), 2)
        states, _ = self.lstm2(self.lstm1(x.flatten(1).view(B, T, -1))[0])
        return self.fc2(F.relu(self.fc1(states[:, -1])))


def cnn(size, stem_stride=2, dropout=0.0, channels_last=False):
    """basic: configs/cnn_mnist.json. cnn_lstm: configs/cnn_moving.json. Others: torchvision's."""
    if size == "cnn_lstm":
        return CnnLstm()
    if size != "basic":
        import torchvision
        net = getattr(torchvision.models, size)(num_classes=10, dropout=dropout)
        if stem_stride != 2:
            net.features[0][0].stride = (stem_stride, stem_stride)
        return net.to(memory_format=torch.channels_last) if channels_last else net
    net, channels = nn.Sequential(), 1
    for i, width in enumerate((16, 32, 64, 64), 1):
        net.add_module(f"conv{i}", nn.Conv2d(channels, width, 3, padding=1, bias=False))
        net.add_module(f"bn{i}", nn.BatchNorm2d(width))
        net.add_module(f"relu{i}", nn.ReLU(inplace=True))
        net.add_module(f"pool{i}", nn.MaxPool2d(2))
        channels = width
    net.add_module("flatten", nn.Flatten())
    net.add_module("fc1", nn.Linear(64, 128))
    net.add_module("relu", nn.ReLU(inplace=True))
    net.add_module("fc2", nn.Linear(128, 10))
    return net


class Aggregator(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear1 = nn.Linear(width, out)
        self.linear2 = nn.Linear(width, out)

    def forward(self, e, adjacency):
        s = torch.sparse.mm(adjacency, e)
        return F.leaky_relu(self.linear1(e + s)) + F.leaky_relu(self.linear2(e * s))


def half_squares(x):
    return 0.5 * x.square().sum(1).mean()


class Kgat(nn.Module):
    """The program cf or kg of KGAT, as its port to PyTorch computes them."""

    def __init__(self, graph, program):
        super().__init__()
        self.program, self.adjacency = program, graph.adjacency().to_sparse_csr()
        self.entity_user_embed = nn.Embedding(graph.n_nodes, 64)
        nn.init.xavier_uniform_(self.entity_user_embed.weight)
        self.aggregator_layers = nn.ModuleList(Aggregator(*sizes) for sizes in ((64, 64), (64, 32), (32, 16)))
        self.relation_embed = nn.Embedding(graph.n_relations, 64)
        self.trans_M = nn.Parameter(torch.empty(graph.n_relations, 64, 64))
        nn.init.xavier_uniform_(self.relation_embed.weight), nn.init.xavier_uniform_(self.trans_M)
        for name, parameter in self.named_parameters():
            is_of_kg = name.startswith(("relation", "trans"))
            parameter.requires_grad_(name.startswith("entity") or is_of_kg == (program == "kg"))

    def forward(self, batch):
        return self.cf(batch) if self.program == "cf" else self.kg(batch)

    def cf(self, batch):
        e = self.entity_user_embed.weight
        parts = [e]
        for layer in self.aggregator_layers:
            e = layer(e, self.adjacency)
            parts.append(F.normalize(e))
        user, right, wrong = torch.cat(parts, 1)[batch]
        lead = (user * right).sum(1) - (user * wrong).sum(1)
        return -F.logsigmoid(lead).mean() + 1e-5 * (half_squares(user) + half_squares(right) + half_squares(wrong))

    def kg(self, batch):
        head, relation, right, wrong = batch
        w, r = self.trans_M[relation], self.relation_embed(relation)
        h, t, f = (torch.bmm(self.entity_user_embed(x).unsqueeze(1), w).squeeze(1) for x in (head, right, wrong))
        lead = (h + r - f).square().sum(1) - (h + r - t).square().sum(1)
        return -F.logsigmoid(lead).mean() + 1e-5 * sum(half_squares(x) for x in (h, r, t, f))


class Attention(nn.Module):
    """Michelangelo's: keys and values of a head side by side, in the cross-attention with queries of their own."""

    def __init__(self, width, heads, crosses):
        super().__init__()
        self.heads, self.crosses = heads, crosses
        if crosses:
            self.c_q = nn.Linear(width, width, bias=False)
            self.c_kv = nn.Linear(width, 2 * width, bias=False)
        else:
            self.c_qkv = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x, data=None):
        def split(y):
            return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)
        if self.crosses:
            q, (k, v) = split(self.c_q(x)), split(self.c_kv(data)).chunk(2, -1)
        else:
            q, k, v = split(self.c_qkv(x)).chunk(3, -1)
        return self.c_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class PointBlock(nn.Module):
    def __init__(self, width, heads, crosses):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        if crosses:
            self.ln_3 = nn.LayerNorm(width)
        self.ln_2 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, crosses)
        self.mlp = nn.Module()
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.crosses = crosses

    def forward(self, x, data=None):
        x = x + self.attn(self.ln_1(x), self.ln_2(data) if self.crosses else None)
        norm = self.ln_3 if self.crosses else self.ln_2
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(norm(x))))


class PointEncoder(nn.Module):
    def __init__(self, frequencies, width, layers, heads, latents):
        super().__init__()
        self.frequencies = frequencies
        self.encoder = nn.Module()
        self.encoder.query = nn.Parameter(0.02 * torch.randn(1 + latents, width))
        self.encoder.input_proj = nn.Linear(3 * (2 * frequencies + 1) + 3, width)
        self.encoder.cross_attn = PointBlock(width, heads, True)
        self.encoder.self_attn = nn.Module()
        self.encoder.self_attn.resblocks = nn.ModuleList(PointBlock(width, heads, False) for _ in range(layers))
        self.encoder.ln_post = nn.LayerNorm(width)

    def forward(self, points):
        e = self.encoder
        xyz, normals = points.split(3, -1)
        angles = (xyz.unsqueeze(-1) * 2.0 ** torch.arange(self.frequencies)).flatten(2)
        data = e.input_proj(torch.cat([xyz, angles.sin(), angles.cos(), normals], -1))
        x = e.cross_attn(e.query.expand(len(points), -1, -1), data)
        for block in e.self_attn.resblocks:
            x = block(x)
        return e.ln_post(x[:, :1])


# width, layers, heads, key and value heads, width of a head, width of the MLP
LANGUAGE_MODELS = {"tiny": (64, 2, 4, 2, 16, 96), "mid": (256, 6, 8, 4, 32, 768)}


class Projector(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.projector = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Dropout(0.0), nn.Linear(48, out))

    def forward(self, x):
        return self.projector(x)


class CadMllm(nn.Module):
    """Transformers' Qwen3 with PEFT's adapters, its DINOv2, and the point encoder above."""

    def __init__(self, size, stage):
        super().__init__()
        import peft
        from transformers import Dinov2Config, Dinov2Model, Qwen3Config, Qwen3ForCausalLM
        width, layers, heads, kv_heads, head_dim, mlp = LANGUAGE_MODELS[size]
        config = Qwen3Config(vocab_size=260, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                             num_key_value_heads=kv_heads, head_dim=head_dim, intermediate_size=mlp,
                             rope_parameters={"rope_type": "default", "rope_theta": 1e6}, rms_norm_eps=1e-6,
                             tie_word_embeddings=False, max_position_embeddings=512, bos_token_id=None, eos_token_id=257,
                             pad_token_id=256, use_cache=False)
        lora = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0, bias="none", task_type="CAUSAL_LM", target_modules=[
            "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
        self.llm = peft.get_peft_model(Qwen3ForCausalLM(config), lora)
        self.image_encoder = Dinov2Model(Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=4,
                                                      image_size=28, patch_size=14, layer_norm_eps=1e-6))
        self.point_encoder = PointEncoder(4, 32, 2, 2, 8)
        self.image_projector, self.point_projector = Projector(32, width), Projector(32, width)
        parts = {"image_encoder": False, "point_encoder": False, "image_projector": stage == 3, "point_projector": stage >= 2}
        for part, learns in parts.items():
            getattr(self, part).requires_grad_(learns)

    def forward(self, batch):
        """The sum over the targets."""
        core = self.llm.base_model.model
        tokens = [core.model.embed_tokens(batch["ids"])]
        if batch["points"] is not None:
            with torch.no_grad():
                points = self.point_encoder(batch["points"])
            tokens.insert(0, self.point_projector(points))
        if batch["pixels"] is not None:
            with torch.no_grad():
                image = self.image_encoder(batch["pixels"]).last_hidden_state[:, 1:]
            tokens.insert(0, self.image_projector(image))
        x = torch.cat(tokens, 1)
        hidden = core.model(inputs_embeds=x).last_hidden_state
        prefix = x.shape[1] - batch["ids"].shape[1]
        labels = F.pad(batch["labels"], (prefix, 0), value=-100)[:, 1:].flatten()
        rows = (labels != -100).nonzero().squeeze(1)
        logits = core.lm_head(hidden[:, :-1].flatten(0, 1)[rows])
        return F.cross_entropy(logits, labels[rows], reduction="sum")
