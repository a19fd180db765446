return plan {
  model = require "models.llama" "tiny", learning_rate = 1e-3, sequence_length = 32, tp_size = 2, data_parallel_size = 2,
  batch = { global = 2, micro_batch_size = 1, seq = 32, gradient_accumulation_steps = 2 },
  mesh = { tensor_parallel = 2, ["context-parallel-size"] = 2, expert_model_parallel_size = 1 },
  optimizer = adamw { learning_rate = 1e-3, max_grad_norm = 1 }, parallel = { fsdp2 { sequence = true } },
}
