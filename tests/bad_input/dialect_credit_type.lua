-- A type of model and a type of trainer that miles-credit does not have.
return require "dialects.credit" {
  world_size = 2,
  model = { type = "wxformers", depth = { 2, 2, 2 } },
  trainer = { type = "multistep", parallelism = { data = "ddp" } },
}
