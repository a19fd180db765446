-- expect: ok mesh dp_shard=2 tp=2 | plan-entries 3 | weights 7 | local model.layers.0.mlp.experts.w1.weight 4,16,24 | local model.layers.0.mlp.shared_experts.gate_proj.weight 16,16 | equal
local nn = require "tandem.nn"
local function shared()
  return nn.module { gate_proj = nn.linear(16, 32), up_proj = nn.linear(16, 32), down_proj = nn.linear(32, 16),
    forward = function(m, x) return m.down_proj(nn.silu(m.gate_proj(x)) * m.up_proj(x)) end }
end
local function block()
  local mlp = nn.module { shared_experts = shared(),
    experts = nn.moe { dim = 16, hidden = 24, experts = 4, top_k = 2, capacity_factor = "all" },
    forward = function(m, x) return m.experts(x) + m.shared_experts(x) end }
  return nn.block { norm = nn.rmsnorm(16), mlp = mlp, forward = function(m, x) return x + m.mlp(m.norm(x)) end }
end
local model = nn.module { embed_tokens = nn.embedding(32, 16), layers = nn.list(2, block),
  forward = function(m, x) return m.layers(m.embed_tokens(x)) end }
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = nn.module { model = model, lm_head = nn.linear(16, 32),
    forward = function(m, x, y) return nn.cross_entropy(m.lm_head(m.model(x)), y) end },
  hf = { torch_dtype = "float32", num_attention_heads = 4 },
  distributed = { tp_size = 2, tp_plan = {
    ["model.layers.*.mlp.shared_experts.gate_proj"] = "colwise", ["model.layers.*.mlp.shared_experts.up_proj"] = "colwise",
    ["model.layers.*.mlp.shared_experts.down_proj"] = "rowwise", lm_head = "colwise" } },
}
