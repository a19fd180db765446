-- expect: error[out-of-range] seq_len must be positive
-- expect: error[out-of-range] grad_clip_norm must be positive
-- expect: error[out-of-range] betas must be two numbers in [0, 1)
-- expect: error[out-of-range] min_lr_ratio must be in [0, 1]
-- expect: error[out-of-range] interval must be positive: checkpoint.interval = 0
-- expect: error[out-of-range] end_step (3) must be greater than start_step (5)
-- expect: error[out-of-range] prefetch_factor must be positive
-- expect: error[missing-key] DatasetSource 'web' must have either path or hf_name
-- expect: error[unknown-word] Unknown dyn_ckpt strategy: 'power3'
-- expect: error[wrong-type] metrics.log_interval must be an integer, not 'often'
-- expect: error[option-contradicts] data.phases and data.anneal_start_step
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = -1, grad_clip_norm = 0.0 },
  optimizer = { betas = { 0.9, 1.0 } },
  scheduler = { min_lr_ratio = 1.5 },
  data = { prefetch_factor = 0, datasets = { { name = "web" } }, phases = { { start_step = 0 } }, anneal_start_step = 9 },
  checkpoint = { interval = 0, dyn_ckpt_window = { strategy = "power3" } },
  metrics = { log_interval = "often" },
  profiling = { start_step = 5, end_step = 3 },
}
