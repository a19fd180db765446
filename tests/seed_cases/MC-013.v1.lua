-- expect: note[dialect-differs] mode = 'fsdp'
-- expect: ok mesh dp_shard=4
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { mode = "fsdp" },
}
