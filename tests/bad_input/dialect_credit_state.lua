-- A state without channels.
return require "dialects.credit" {
  world_size = 4,
  model = { type = "wxformer", channels = 0, surface_channels = 0 },
  trainer = { parallelism = { data = "ddp" } },
}
