-- expect: ok mesh dp_shard=4 ep=2 | experts 2 | data 0/8 1/8 2/8 3/8 4/8 5/8 6/8 7/8 | equal
-- expect: ok parallel ep, fsdp2(keep) | count ep all_to_all 8
-- expect: note[dialect-differs] capacity_factor = all | room for every token
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { dp_size = 8, ep_size = 2 },
}
