-- expect: ok ranks 24
return require "dialects.kempnerforge" {
  world = 24,
   model = { dim = 2048, n_layers = 24, n_heads = 16, n_kv_heads = 4, vocab_size = 128256, ffn_dim_multiplier =
    1.3, max_seq_len = 4096, rope_theta = 500000.0, num_experts = 8, moe_top_k = 2, moe_frequency = 1,
    moe_router = "softmax_topk", moe_aux_loss_weight = 0.01 },
   train = { batch_size = 2, seq_len = 4096, max_steps = 100, grad_accum_steps = 32, grad_clip_norm = 1.0,
    compile_model = false, mixed_precision = "bf16", activation_checkpointing = "none" },
   optimizer = { lr = 0.0003, weight_decay = 0.1 },
   scheduler = { warmup_steps = 10, min_lr_ratio = 0.1 },
   data = { num_workers = 4, pin_memory = true },
   distributed = { tp = 4, dp_shard = 6 },
   checkpoint = { dir = "checkpoints/moe_24gpu", interval = 50, keep_last_n = 2 },
   metrics = { log_interval = 5, enable_wandb = false, enable_tensorboard = false },
}
