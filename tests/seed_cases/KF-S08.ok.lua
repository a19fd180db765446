-- expect: ok precision f32 f32 f32
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_clip_norm = 0.5, mixed_precision = "fp32" },
  optimizer = { betas = { 0.9, 0.99 } },
  scheduler = { min_lr_ratio = 0.0 },
  data = { prefetch_factor = 1, datasets = { { name = "web", path = "/data/web" } }, phases = { { start_step = 0 } } },
  checkpoint = { interval = 1, dyn_ckpt_window = { strategy = "power2" } },
  metrics = { log_interval = 1 },
  profiling = { start_step = 5, end_step = 6 },
}
