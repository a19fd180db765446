return plan {
  model = require "models.llama" { size = "tiny", layers = 4 },
  batch = { global = 16, micro = 2, seq = 64 },
  mesh = { dp_shard = 2 },
  parallel = {
    float8 { skip = { "nope" } },
    ac { modules = { "nope" } },
    fsdp2 { units = { "nope" } },
  },
}
