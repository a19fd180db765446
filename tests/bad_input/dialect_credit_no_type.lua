-- A model block that does not say which model it is.
return require "dialects.credit" {
  world_size = 4,
  model = { image_height = 640, image_width = 1280, dim = { 8, 16, 32, 64 } },
  trainer = { parallelism = { data = "ddp", domain = 2 } },
}
