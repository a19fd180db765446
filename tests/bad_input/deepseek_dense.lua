return plan {
  model = require "models.deepseek" { size = 'tiny', dense = 'x' },
  batch = { global = 4, seq = 32 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
