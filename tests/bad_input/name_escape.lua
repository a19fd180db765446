local m = require "models.llama" "tiny"
m.name = "a\27[31mb"
return plan {
  model = m, batch = { global = 4, seq = 64 }, mesh = { dp_shard = 2 }, parallel = { fsdp2 {} },
}
