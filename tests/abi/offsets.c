/* offsets.c - sizes and offsets of every public struct at level 1, on machines with 64-bit pointers.
 *
 * Made once from the headers of that level and then kept: plugins that were built with them are out there. A
 * line for a MEMBER never changes. What grows a struct changes its SIZE, adds MEMBER lines, and is a new level;
 * what is FROZEN, array elements and values, does not grow at all. */
#include <tenon/abi.h>
#include <tenon/bootstrap.h>
#include <tenon/comm.h>
#include <tenon/device.h>
#include <tenon/kernels.h>
#include <tenon/optimizer.h>
#include <tenon/pass.h>

#define SIZE(STRUCT, BYTES) _Static_assert(sizeof(struct STRUCT) == (BYTES), "size of " #STRUCT)
#define FROZEN(STRUCT, BYTES) SIZE(STRUCT, BYTES)
#define MEMBER(STRUCT, NAME, AT) \
    _Static_assert(offsetof(struct STRUCT, NAME) == (AT), "offset of " #STRUCT "." #NAME)

/* --- abi.h */
FROZEN(tn_interface, 16);
MEMBER(tn_interface, id, 0);
MEMBER(tn_interface, table, 8);
SIZE(tn_plugin, 56);
MEMBER(tn_plugin, struct_size, 0);
MEMBER(tn_plugin, reserved0, 4);
MEMBER(tn_plugin, name, 8);
MEMBER(tn_plugin, version, 16);
MEMBER(tn_plugin, about, 24);
MEMBER(tn_plugin, interfaces, 32);
MEMBER(tn_plugin, start, 40);
MEMBER(tn_plugin, stop, 48);
FROZEN(tn_option, 40);
MEMBER(tn_option, key, 0);
MEMBER(tn_option, preset, 8);
MEMBER(tn_option, help, 16);
MEMBER(tn_option, low, 24);
MEMBER(tn_option, high, 32);
FROZEN(tn_attr, 24);
MEMBER(tn_attr, key, 0);
MEMBER(tn_attr, type, 8);
MEMBER(tn_attr, count, 12);
MEMBER(tn_attr, as, 16);
SIZE(tn_host, 72);
MEMBER(tn_host, struct_size, 0);
MEMBER(tn_host, abi, 4);
MEMBER(tn_host, error, 8);
MEMBER(tn_host, log, 16);
MEMBER(tn_host, interface, 24);
MEMBER(tn_host, parallel, 32);
MEMBER(tn_host, team, 40);
MEMBER(tn_host, barrier, 48);
MEMBER(tn_host, threads, 56);
MEMBER(tn_host, graph, 64);
FROZEN(tn_note, 192);
MEMBER(tn_note, note_size, 0);
MEMBER(tn_note, abi_min, 4);
MEMBER(tn_note, abi_max, 8);
MEMBER(tn_note, cpu, 12);
MEMBER(tn_note, name, 16);
MEMBER(tn_note, version, 48);
MEMBER(tn_note, provides, 64);
FROZEN(tn_note_record, 212);
MEMBER(tn_note_record, namesz, 0);
MEMBER(tn_note_record, descsz, 4);
MEMBER(tn_note_record, type, 8);
MEMBER(tn_note_record, owner, 12);
MEMBER(tn_note_record, desc, 20);

/* --- bootstrap.h */
SIZE(tn_place, 360);
MEMBER(tn_place, struct_size, 0);
MEMBER(tn_place, rank, 4);
MEMBER(tn_place, size, 8);
MEMBER(tn_place, local_rank, 12);
MEMBER(tn_place, local_size, 16);
MEMBER(tn_place, node, 20);
MEMBER(tn_place, nodes, 24);
MEMBER(tn_place, port, 28);
MEMBER(tn_place, address, 32);
MEMBER(tn_place, job, 288);
MEMBER(tn_place, ports, 352);
MEMBER(tn_place, reserved0, 356);
SIZE(tn_bootstrap, 40);
MEMBER(tn_bootstrap, struct_size, 0);
MEMBER(tn_bootstrap, reserved0, 4);
MEMBER(tn_bootstrap, probe, 8);
MEMBER(tn_bootstrap, locate, 16);
MEMBER(tn_bootstrap, publish, 24);
MEMBER(tn_bootstrap, leave, 32);
SIZE(tn_store, 24);
MEMBER(tn_store, struct_size, 0);
MEMBER(tn_store, reserved0, 4);
MEMBER(tn_store, set, 8);
MEMBER(tn_store, get, 16);

/* --- comm.h */
FROZEN(tn_transfer, 64);
MEMBER(tn_transfer, op, 0);
MEMBER(tn_transfer, dtype, 4);
MEMBER(tn_transfer, reduce, 8);
MEMBER(tn_transfer, peer, 12);
MEMBER(tn_transfer, from, 16);
MEMBER(tn_transfer, to, 24);
MEMBER(tn_transfer, count, 32);
MEMBER(tn_transfer, counts, 40);
MEMBER(tn_transfer, counts_in, 48);
MEMBER(tn_transfer, sequence, 56);
SIZE(tn_comm_api, 88);
MEMBER(tn_comm_api, struct_size, 0);
MEMBER(tn_comm_api, reserved0, 4);
MEMBER(tn_comm_api, devices, 8);
MEMBER(tn_comm_api, probe, 16);
MEMBER(tn_comm_api, open, 24);
MEMBER(tn_comm_api, group, 32);
MEMBER(tn_comm_api, start, 40);
MEMBER(tn_comm_api, wait, 48);
MEMBER(tn_comm_api, abort, 56);
MEMBER(tn_comm_api, close, 64);
MEMBER(tn_comm_api, wait_on, 72);
MEMBER(tn_comm_api, check, 80);

/* --- device.h */
SIZE(tn_device_info, 128);
MEMBER(tn_device_info, struct_size, 0);
MEMBER(tn_device_info, dtypes, 4);
MEMBER(tn_device_info, memory_free, 8);
MEMBER(tn_device_info, memory_total, 16);
MEMBER(tn_device_info, alignment, 24);
MEMBER(tn_device_info, name, 32);
MEMBER(tn_device_info, host_access, 96);
MEMBER(tn_device_info, queues, 100);
MEMBER(tn_device_info, peak_fp32, 104);
MEMBER(tn_device_info, peak_low, 112);
MEMBER(tn_device_info, peak_memory, 120);
SIZE(tn_device_api, 160);
MEMBER(tn_device_api, struct_size, 0);
MEMBER(tn_device_api, reserved0, 4);
MEMBER(tn_device_api, kind, 8);
MEMBER(tn_device_api, probe, 16);
MEMBER(tn_device_api, open, 24);
MEMBER(tn_device_api, close, 32);
MEMBER(tn_device_api, info, 40);
MEMBER(tn_device_api, alloc, 48);
MEMBER(tn_device_api, free, 56);
MEMBER(tn_device_api, queue, 64);
MEMBER(tn_device_api, queue_close, 72);
MEMBER(tn_device_api, copy, 80);
MEMBER(tn_device_api, fill, 88);
MEMBER(tn_device_api, event, 96);
MEMBER(tn_device_api, event_close, 104);
MEMBER(tn_device_api, record, 112);
MEMBER(tn_device_api, wait, 120);
MEMBER(tn_device_api, sync, 128);
MEMBER(tn_device_api, host_alloc, 136);
MEMBER(tn_device_api, host_free, 144);
MEMBER(tn_device_api, native, 152);
SIZE(tn_device_capture, 48);
MEMBER(tn_device_capture, struct_size, 0);
MEMBER(tn_device_capture, reserved0, 4);
MEMBER(tn_device_capture, kind, 8);
MEMBER(tn_device_capture, begin, 16);
MEMBER(tn_device_capture, end, 24);
MEMBER(tn_device_capture, replay, 32);
MEMBER(tn_device_capture, close, 40);

/* --- kernels.h */
FROZEN(tn_operand, 56);
MEMBER(tn_operand, dtype, 0);
MEMBER(tn_operand, rank, 4);
MEMBER(tn_operand, size, 8);
MEMBER(tn_operand, stride, 16);
MEMBER(tn_operand, whole, 24);
MEMBER(tn_operand, origin, 32);
MEMBER(tn_operand, index, 40);
MEMBER(tn_operand, dim, 48);
FROZEN(tn_loop, 104);
MEMBER(tn_loop, size, 0);
MEMBER(tn_loop, stride, 8);
FROZEN(tn_instr, 8);
MEMBER(tn_instr, op, 0);
MEMBER(tn_instr, a, 2);
MEMBER(tn_instr, b, 4);
MEMBER(tn_instr, c, 6);
SIZE(tn_program, 56);
MEMBER(tn_program, struct_size, 0);
MEMBER(tn_program, n_instr, 4);
MEMBER(tn_program, n_constant, 8);
MEMBER(tn_program, n_uniform, 12);
MEMBER(tn_program, n_result, 16);
MEMBER(tn_program, reserved0, 20);
MEMBER(tn_program, instr, 24);
MEMBER(tn_program, constant, 32);
MEMBER(tn_program, result, 40);
MEMBER(tn_program, text, 48);
SIZE(tn_problem, 80);
MEMBER(tn_problem, struct_size, 0);
MEMBER(tn_problem, n_in, 4);
MEMBER(tn_problem, n_out, 8);
MEMBER(tn_problem, n_attr, 12);
MEMBER(tn_problem, n_loop, 16);
MEMBER(tn_problem, n_reduced, 20);
MEMBER(tn_problem, accumulate, 24);
MEMBER(tn_problem, reserved0, 28);
MEMBER(tn_problem, op, 32);
MEMBER(tn_problem, in, 40);
MEMBER(tn_problem, out, 48);
MEMBER(tn_problem, attr, 56);
MEMBER(tn_problem, loop, 64);
MEMBER(tn_problem, program, 72);
SIZE(tn_launch, 40);
MEMBER(tn_launch, struct_size, 0);
MEMBER(tn_launch, micro, 4);
MEMBER(tn_launch, buffer, 8);
MEMBER(tn_launch, workspace, 16);
MEMBER(tn_launch, uniform, 24);
MEMBER(tn_launch, queue, 32);
SIZE(tn_kernel, 40);
MEMBER(tn_kernel, struct_size, 0);
MEMBER(tn_kernel, reserved0, 4);
MEMBER(tn_kernel, state, 8);
MEMBER(tn_kernel, launch, 16);
MEMBER(tn_kernel, release, 24);
MEMBER(tn_kernel, workspace, 32);
SIZE(tn_kernels, 40);
MEMBER(tn_kernels, struct_size, 0);
MEMBER(tn_kernels, reserved0, 4);
MEMBER(tn_kernels, device, 8);
MEMBER(tn_kernels, ops, 16);
MEMBER(tn_kernels, probe, 24);
MEMBER(tn_kernels, prepare, 32);

/* --- optimizer.h */
FROZEN(tn_slot, 16);
MEMBER(tn_slot, name, 0);
MEMBER(tn_slot, dtype, 8);
MEMBER(tn_slot, reserved0, 12);
SIZE(tn_optimizer, 48);
MEMBER(tn_optimizer, struct_size, 0);
MEMBER(tn_optimizer, reserved0, 4);
MEMBER(tn_optimizer, options, 8);
MEMBER(tn_optimizer, slots, 16);
MEMBER(tn_optimizer, update, 24);
MEMBER(tn_optimizer, choose, 32);
MEMBER(tn_optimizer, build, 40);

/* --- pass.h */
SIZE(tn_pass, 48);
MEMBER(tn_pass, struct_size, 0);
MEMBER(tn_pass, reserved0, 4);
MEMBER(tn_pass, options, 8);
MEMBER(tn_pass, forward, 16);
MEMBER(tn_pass, train, 24);
MEMBER(tn_pass, schedule, 32);
MEMBER(tn_pass, lower, 40);
SIZE(tn_graph_api, 400);
MEMBER(tn_graph_api, struct_size, 0);
MEMBER(tn_graph_api, reserved0, 4);
MEMBER(tn_graph_api, fail, 8);
MEMBER(tn_graph_api, option, 16);
MEMBER(tn_graph_api, axis_size, 24);
MEMBER(tn_graph_api, next_node, 32);
MEMBER(tn_graph_api, next_param, 40);
MEMBER(tn_graph_api, next_input, 48);
MEMBER(tn_graph_api, next_user, 56);
MEMBER(tn_graph_api, newest, 64);
MEMBER(tn_graph_api, op, 72);
MEMBER(tn_graph_api, role, 80);
MEMBER(tn_graph_api, unit, 88);
MEMBER(tn_graph_api, phase, 96);
MEMBER(tn_graph_api, attr, 104);
MEMBER(tn_graph_api, input, 112);
MEMBER(tn_graph_api, output, 120);
MEMBER(tn_graph_api, operands, 128);
MEMBER(tn_graph_api, producer, 136);
MEMBER(tn_graph_api, is_param, 144);
MEMBER(tn_graph_api, dim, 152);
MEMBER(tn_graph_api, layout, 160);
MEMBER(tn_graph_api, grad, 168);
MEMBER(tn_graph_api, shard, 176);
MEMBER(tn_graph_api, set_layout, 184);
MEMBER(tn_graph_api, at, 192);
MEMBER(tn_graph_api, at_end, 200);
MEMBER(tn_graph_api, set_role, 208);
MEMBER(tn_graph_api, add, 216);
MEMBER(tn_graph_api, convert, 224);
MEMBER(tn_graph_api, clone, 232);
MEMBER(tn_graph_api, set_input, 240);
MEMBER(tn_graph_api, replace, 248);
MEMBER(tn_graph_api, remove, 256);
MEMBER(tn_graph_api, decompose, 264);
MEMBER(tn_graph_api, set_grad, 272);
MEMBER(tn_graph_api, on, 280);
MEMBER(tn_graph_api, unit_index, 288);
MEMBER(tn_graph_api, copy_param, 296);
MEMBER(tn_graph_api, primary, 304);
MEMBER(tn_graph_api, task, 312);
MEMBER(tn_graph_api, when_last, 320);
MEMBER(tn_graph_api, move, 328);
MEMBER(tn_graph_api, convert_all, 336);
MEMBER(tn_graph_api, bytes, 344);
MEMBER(tn_graph_api, reads, 352);
MEMBER(tn_graph_api, gradients, 360);
MEMBER(tn_graph_api, option_text, 368);
MEMBER(tn_graph_api, micro_batches, 376);
MEMBER(tn_graph_api, flops, 384);
MEMBER(tn_graph_api, convert_rows, 392);
