-- miles-credit's own model block. Whole windows do not fill its grid, its padding is one-sided, its group norms do not divide, and its patches have 4 rows.
return require "dialects.credit" {
  world_size = 2,
  model = {
    type = "wxformer", image_height = 721, image_width = 1440, frames = 1, dim = { 128, 256, 512, 512 },
    global_window_size = { 8, 4, 2, 1 }, local_window_size = 4, cross_embed_strides = { 2, 2, 2, 2 },
    padding_conf = { activate = true, mode = "earth", pad_lat = { 20, 20 }, pad_lon = { 32, 0 } },
    patch_height = 4,
  },
  trainer = { type = "gen2", parallelism = { data = "ddp" }, ensemble_size = 2 },
}
