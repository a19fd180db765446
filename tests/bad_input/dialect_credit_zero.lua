-- Sizes of 0, and what is not a size, in miles-credit's own model block: each is named by its own key, once.
return require "dialects.credit" {
  world_size = 4,
  model = {
    type = "wxformer",
    image_height = 0,
    dim_head = 0,
    dim = { 0, 16, 32, 64 },
    local_window_size = 0,
    global_window_size = { 10, 0, 2, 1 },
    cross_embed_kernel_sizes = { { 4, "big" }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 0, 2, 2 },
  },
  trainer = {
    parallelism = { data = "ddp", tensor = 1, domain = 2 },
    train_batch_size = 0,
    grad_accum_every = 0,
  },
}
