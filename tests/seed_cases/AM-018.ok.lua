-- expect: warning[not-applied] distributed.moe
-- expect: ok mesh dp_shard=8 | parallel fsdp2(reshard but the last)
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 1, moe = {} },
}
