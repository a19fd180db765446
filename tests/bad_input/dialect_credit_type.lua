-- A model that is not planned, in a list of stages that is too short.
return require "dialects.credit" {
  world_size = 2,
  model = { type = "wxformers", depth = { 2, 2, 2 } },
  trainer = { type = "multistep", parallelism = { data = "ddp" } },
}
