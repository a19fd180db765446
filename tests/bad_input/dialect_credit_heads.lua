-- tp must divide the heads of each level. domain needs a grid, which a model of tokens lacks.
return require "dialects.credit" {
  world_size = 9,
  seq_length = 64,
  model = require "models.wxformer" "tiny",
  trainer = {
    parallelism = { data = "fsdp2", tensor = 3, domain = 3 },
  },
}
