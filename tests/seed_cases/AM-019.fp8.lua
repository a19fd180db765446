-- expect: ok mesh dp_shard=8 | parallel float8(tensorwise, 8-bit gathers), fsdp2(reshard but the last) | float8 12 of 15
-- expect: note[float8-excluded] layers.0.feed_forward.w2
return require "dialects.automodel" {
  cluster = require "clusters.dgx_h100" { nodes = 1 }, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  fp8 = { filter_fqns = { "model.layers.*.mlp.down_proj", "lm_head" }, enable_fsdp_float8_all_gather = true },
}
