-- expect: ok mesh dp_replicate=2 dp_shard=2 cp=2 tp=2 | equal
return require "dialects.automodel" {
  world_size = 16, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", num_attention_heads = 4 },
  distributed = { dp_size = 4, dp_replicate_size = 2, tp_size = 2, cp_size = 2 },
}
