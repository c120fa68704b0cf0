package mqstore.differential;

import com.alibaba.fastjson2.JSONObject;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A name server and one broker on the loopback address, with the clients that talk to them. */
final class Cluster implements AutoCloseable {
    private static final String LOOPBACK = "127.0.0.1";
    private static final int REGISTER_SECONDS = 20;
    /** So often a broker deletes expired files once it is told to ({@code MAX_MANUAL_DELETE_FILE_TIMES}). */
    private static final int MANUAL_DELETES = 20;

    private final NamesrvController names;
    private final BrokerController controller;
    private final String nameServer;
    private final String broker;
    private final Clients clients;
    private final ShortWaits waits = new ShortWaits();

    private Cluster(NamesrvController names, BrokerController controller, String nameServer, String broker) {
        this.names = names;
        this.controller = controller;
        this.nameServer = nameServer;
        this.broker = broker;
        this.clients = new Clients(nameServer, broker);
    }

    /** Starts both on the store's directory; the broker loads, and so recovers, the store first. */
    static Cluster start(String root, JSONObject parameters) throws Exception {
        // As the start scripts do: a name server believes a broker without a version to be too old to name topics.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        int namePort = parameters.containsKey("namePort") ? parameters.getIntValue("namePort") : freePort();
        String nameServer = LOOPBACK + ":" + namePort;
        NamesrvConfig namesConfig = new NamesrvConfig();
        namesConfig.setRocketmqHome(root);
        namesConfig.setKvConfigPath(root + "/../namesrv/kvConfig.json");
        namesConfig.setConfigStorePath(root + "/../namesrv/namesrv.properties");
        NamesrvController names = new NamesrvController(namesConfig, server(namePort));
        if (!names.initialize()) {
            throw new IllegalStateException("the name server did not initialize");
        }
        names.start();

        int port = parameters.containsKey("brokerPort") ? parameters.getIntValue("brokerPort") : freePortWithFast();
        BrokerConfig brokerConfig = new BrokerConfig();
        brokerConfig.setRocketmqHome(root);
        brokerConfig.setBrokerName("differential");
        brokerConfig.setBrokerClusterName("differential");
        brokerConfig.setBrokerIP1(LOOPBACK);
        brokerConfig.setNamesrvAddr(nameServer);
        brokerConfig.setAutoCreateTopicEnable(false);
        MixAll.properties2Object(Settings.properties(parameters, "brokerConfig"), brokerConfig);
        MessageStoreConfig storeConfig = Settings.store(root, parameters);
        // Its wheel alone is 39 MB, and few tests send a message for a given time.
        storeConfig.setTimerWheelEnable(Boolean.parseBoolean(
            Settings.properties(parameters, "storeConfig").getProperty("timerWheelEnable", "false")));
        AuthConfig auth = new AuthConfig();
        auth.setConfigName(brokerConfig.getBrokerName());
        auth.setClusterName(brokerConfig.getBrokerClusterName());
        auth.setAuthConfigPath(root + File.separator + "config");
        MixAll.properties2Object(Settings.properties(parameters, "authConfig"), auth);
        BrokerController controller = new BrokerController(brokerConfig, server(port), new NettyClientConfig(),
            storeConfig, auth);
        try {
            if (!controller.initialize()) {
                throw new IllegalStateException("the broker did not initialize on " + root);
            }
            controller.start();
            register(controller, names);
        } catch (Exception e) {
            controller.shutdown();
            names.shutdown();
            throw e;
        }
        return new Cluster(names, controller, nameServer, LOOPBACK + ":" + port);
    }

    /**
     * Registers until the name server knows a way to every topic of the broker. The broker's own attempt at its start finds no name server
     * yet when its client has not looked around, and its next one comes ten seconds later.
     */
    private static void register(BrokerController controller, NamesrvController names) throws InterruptedException {
        Set<String> topics = controller.getTopicConfigManager().getTopicConfigTable().keySet();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(REGISTER_SECONDS);
        while (!topics.stream().allMatch(topic -> names.getRouteInfoManager().pickupTopicRouteData(topic) != null)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the name server does not know all of " + topics);
            }
            TimeUnit.MILLISECONDS.sleep(20);
            controller.registerBrokerAll(true, false, true);
        }
    }

    private static NettyServerConfig server(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setBindAddress(LOOPBACK);
        config.setListenPort(port);
        return config;
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName(LOOPBACK))) {
            return socket.getLocalPort();
        }
    }

    /** A broker takes two ports: the given one and the one two below. */
    private static int freePortWithFast() throws IOException {
        while (true) {
            int port = freePort();
            try (ServerSocket fast = new ServerSocket(port - 2, 1, InetAddress.getByName(LOOPBACK))) {
                return fast.getLocalPort() + 2;
            } catch (IOException taken) {
                continue;
            }
        }
    }

    String nameServer() {
        return nameServer;
    }

    String broker() {
        return broker;
    }

    void produce(List<JSONObject> lines, Consumer<JSONObject> rows) throws Exception {
        clients.produce(lines, rows);
    }

    void consume(JSONObject command, Consumer<JSONObject> rows) throws Exception {
        if ("push".equals(command.getString("mode"))) {
            clients.push(command, rows);
        } else if ("light".equals(command.getString("mode"))) {
            clients.light(command, rows);
        } else {
            clients.pull(command, rows);
        }
    }

    void view(JSONObject command, Consumer<JSONObject> rows) throws Exception {
        clients.view(command, rows);
    }

    /** Deletes expired files now and no later; the broker's own timers first look a minute after the start. */
    void deleteExpired() throws Exception {
        clients.deleteExpired();
        for (int i = 0; i < MANUAL_DELETES; i++) {
            pass("cleanFilesPeriodically");
        }
        pass("cleanQueueFilesPeriodically");
    }

    /** Runs one pass of the store's own timer. */
    private void pass(String name) throws Exception {
        Method pass = DefaultMessageStore.class.getDeclaredMethod(name);
        pass.setAccessible(true);
        pass.invoke(controller.getMessageStore());
    }

    @Override
    public void close() {
        clients.close();
        controller.shutdown();
        names.shutdown();
        waits.close();
    }
}
