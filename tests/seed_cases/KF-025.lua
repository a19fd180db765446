-- expect: ok mesh tp=4
-- expect: warning[not-applied] fsdp2{} does not shard parameters, because mesh.dp_shard is 1
-- instead: a mesh without data axes is legal, and a warning says that fsdp2{} then does nothing
return plan {
  model = require "models.llama" { size = "tiny", kv_heads = 4 },
  batch = { global = 1, micro = 1, seq = 64 },
  mesh = { tp = 4 },
  parallel = { tp {}, fsdp2 {} },
}
