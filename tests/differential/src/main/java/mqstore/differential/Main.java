package mqstore.differential;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.MQVersion;

/**
 * Commands in, answers out, both as JSON lines, so that many tests share one process.
 *
 * <p>A command is {@code {"id": 1, "command": "dump", "store": "/path", "params": {...}, ...}}. Its answer is any
 * number of {@code {"id": 1, "row": {...}}} and one {@code {"id": 1, "done": {...}}} or {@code {"id": 1, "error":
 * "..."}}. The end of the input ends the process, after all that is open was closed.
 *
 * <p>{@code hold} opens a store and keeps it; the other commands use a store that is held, else they open and close
 * it themselves. {@code crash} ends the process at once, as a kill would, leaving everything as it is.
 */
public final class Main {
    private final PrintStream out;
    private final Map<String, OpenStore> held = new HashMap<>();
    private Cluster cluster;
    private Object id;

    private Main(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false,
            StandardCharsets.UTF_8);
        // Output of libraries must not fall between the answers.
        System.setOut(System.err);
        Main main = new Main(out);
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (!line.isBlank()) {
                    main.answer(parse(line));
                }
            }
        }
        main.closeAll();
        out.flush();
        // Threads of the libraries would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private void answer(JSONObject command) {
        id = command.get("id");
        try {
            send("done", run(command));
        } catch (Throwable e) {
            StringBuilder text = new StringBuilder(e.toString());
            for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
                text.append(" caused by ").append(cause);
            }
            e.printStackTrace(System.err);
            send("error", text.toString());
        }
        out.flush();
    }

    private JSONObject run(JSONObject command) throws Exception {
        JSONObject done = new JSONObject();
        String root = command.getString("store");
        JSONObject parameters = command.getJSONObject("params");
        switch (command.getString("command")) {
            case "ping" -> done.put("version", MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
            case "hold" -> {
                held.put(root, OpenStore.ready(root, parameters));
                done.put("ready", true);
            }
            case "release" -> {
                held.remove(root).close();
                done.put("released", true);
            }
            case "truncate" -> done.put("truncated", held.get(root).store.truncateFiles(command.getLongValue("offset")));
            case "delete-topic" -> done.put("deleted", held.get(root).store.deleteTopics(Set.of(command.getString("topic"))));
            case "write" -> write(command, root, parameters, done);
            case "dump" -> with(root, parameters, opened -> Dump.all(opened, this::row));
            case "query" -> with(root, parameters, opened -> {
                Queries queries = new Queries(opened);
                for (JSONObject query : lines(command, "queries")) {
                    row(queries.ask(query.containsKey("query") ? query.getJSONObject("query") : query));
                }
            });
            case "recover" -> Recovery.run(root, parameters, this::row);
            case "race" -> Race.run(command, root, parameters, done);
            case "crash" -> Runtime.getRuntime().halt(137);
            case "start-broker" -> {
                cluster = Cluster.start(root, parameters);
                done.put("nameServer", cluster.nameServer());
                done.put("broker", cluster.broker());
            }
            case "produce" -> cluster().produce(lines(command, "lines"), this::row);
            case "consume" -> cluster().consume(command, this::row);
            case "view" -> cluster().view(command, this::row);
            case "flood" -> done.put("seconds", Flood.seconds(command));
            case "delete-expired" -> cluster().deleteExpired();
            case "stop-broker" -> {
                cluster().close();
                cluster = null;
            }
            default -> throw new IllegalArgumentException("command " + command.getString("command"));
        }
        return done;
    }

    private void write(JSONObject command, String root, JSONObject parameters, JSONObject done) throws Exception {
        with(root, parameters, opened -> {
            boolean paced = command.getBooleanValue("paced");
            int index = 0;
            for (JSONObject line : lines(command, "script")) {
                long began = System.currentTimeMillis();
                row(Script.put(opened.store, line, index++));
                if (paced) {
                    pace(opened, began);
                }
            }
            done.put("dispatched", opened.awaitDispatch());
            done.put("maxPhyOffset", opened.store.getMaxPhyOffset());
        });
    }

    /**
     * Lets the clock move on between two messages. An index file is named by the millisecond of its creation, and two
     * of one name would write over each other.
     */
    private static void pace(OpenStore opened, long began) throws InterruptedException {
        opened.awaitDispatch();
        while (System.currentTimeMillis() <= began) {
            Thread.onSpinWait();
        }
    }

    private interface Use {
        void of(OpenStore opened) throws Exception;
    }

    private void with(String root, JSONObject parameters, Use use) throws Exception {
        OpenStore kept = held.get(root);
        if (kept != null) {
            kept.awaitDispatch();
            use.of(kept);
            return;
        }
        try (OpenStore opened = OpenStore.ready(root, parameters)) {
            use.of(opened);
        }
    }

    private Cluster cluster() {
        if (cluster == null) {
            throw new IllegalStateException("no broker was started");
        }
        return cluster;
    }

    /** The lines of a command: an array in it, or the path of a file with one JSON object on each line. */
    private static List<JSONObject> lines(JSONObject command, String name) throws IOException {
        List<JSONObject> lines = new ArrayList<>();
        Object given = command.get(name);
        if (given instanceof JSONArray array) {
            for (int i = 0; i < array.size(); i++) {
                lines.add(array.getJSONObject(i));
            }
            return lines;
        }
        for (String line : Files.readAllLines(Path.of((String) given))) {
            if (!line.isBlank()) {
                lines.add(parse(line));
            }
        }
        return lines;
    }

    private static JSONObject parse(String line) {
        return JSON.parseObject(line);
    }

    private void row(JSONObject row) {
        send("row", row);
    }

    private void send(String name, Object value) {
        JSONObject line = new JSONObject();
        line.put("id", id);
        line.put(name, value);
        out.print(JSON.toJSONString(line, JSONWriter.Feature.WriteMapNullValue));
        out.print('\n');
    }

    private void closeAll() {
        held.values().forEach(OpenStore::close);
        if (cluster != null) {
            cluster.close();
        }
    }
}
